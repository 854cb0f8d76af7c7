"""Where a study may be played, as its user asks for it.

`import tacit` imports this module, so torch is imported only when a placement is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypedDict

from tacit.core.errors import StudyError, shown


class ExecutionOptions(TypedDict, total=False):
    """The options that `tacit.run`, `tacit.resume` and `tacit.plan` share; see `tacit.run`."""

    data: str | None
    device: str
    workers: int | None
    threads: int | None
    on: str | None
    exact: bool


@dataclass(frozen=True)
class Placement:
    """Where a study may be played; what is None is chosen by the planner."""

    device: str = "cpu"
    workers: int | None = None
    threads: int | None = None
    on: str | None = None  # a Ray cluster
    exact: bool = False  # on a GPU, no TF32

    @classmethod
    def of(cls, options: ExecutionOptions) -> Placement:
        """The placement that these options ask for; `data` is not about the place."""
        settings: Any = {name: value for name, value in options.items() if name != "data"}
        return cls(**settings)

    def __post_init__(self) -> None:
        _check_count("workers", self.workers)
        _check_count("threads", self.threads)
        self._check_threads()
        if self.on is not None and (not isinstance(self.on, str) or not self.on):
            text = "on: expected a Ray cluster's address, such as ray://host:10001"
            raise StudyError(f"{text}, got {shown(self.on)}", parameters=("on",))
        devices = self.devices  # which refuses devices that are not there
        if self.workers and not self.on and devices != ("cpu",):
            text = "workers are for cores, and every GPU has one process"
            remedy = "to use several GPUs, name them all, such as cuda:0,cuda:1"
            raise StudyError(
                f"{text}; {remedy}, and leave workers out", parameters=("device", "workers")
            )

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices by name, one or several."""
        from tacit.execution.devices import devices_of

        return devices_of(self.device, elsewhere=self.on is not None)

    @property
    def on_cores(self) -> bool:
        """Whether CPUs are used, and no GPU."""
        return self.devices == ("cpu",)

    def _check_threads(self) -> None:
        from tacit.core.machine import usable_cores

        if self.threads is not None and self.threads > usable_cores() and self.on is None:
            text = f"threads: this machine has {usable_cores()} cores for this process"
            raise StudyError(f"{text}, got {self.threads}", parameters=("threads",))


EXECUTION_DEFAULTS = {field.name: field.default for field in fields(Placement)}
EXECUTION_DEFAULTS["data"] = None


def _check_count(name: str, value: Any) -> None:
    """Refuses what is neither None nor a whole number of 1 or more."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        text = f"{name}: expected a whole number of 1 or more, got {shown(value)}"
        raise StudyError(text, parameters=(name,))
