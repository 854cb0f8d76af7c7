"""Where a study may be played, as its user asks for it.

`import tacit` imports this module, so torch is imported only when a placement is checked.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypedDict, TypeVar, get_type_hints

from tacit.core.errors import StudyError, shown, suggest

P = ParamSpec("P")
T = TypeVar("T")


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
            text = (
                "workers are for cores, and every GPU has one; to use several GPUs, name them all"
            )
            raise StudyError(
                f"{text}, such as cuda:0,cuda:1, and leave workers out",
                parameters=("device", "workers"),
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
        from tacit.execution.devices import cores

        if self.threads is not None and self.threads > cores() and self.on is None:
            text = f"threads: this machine has {cores()} cores for this process"
            raise StudyError(f"{text}, got {self.threads}", parameters=("threads",))


def takes_options(function: Callable[P, T]) -> Callable[P, T]:
    """Treats the `**options` of a function, which are `ExecutionOptions`, as if each were written.

    The signature shows every option with its type and default, and any other name is refused.
    """
    signature = _spelt_out(inspect.signature(function))

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in signature.parameters:
                text = f"{function.__name__}() got an unexpected keyword argument {name!r}"
                raise TypeError(f"{text}; {suggest(name, signature.parameters)}")
        return function(*args, **kwargs)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _spelt_out(signature: inspect.Signature) -> inspect.Signature:
    """The signature with each option in place of `**options`."""
    defaults = {field.name: field.default for field in fields(Placement)} | {"data": None}
    written = signature.parameters.values()
    parameters = [item for item in written if item.kind is not inspect.Parameter.VAR_KEYWORD]
    for name, annotation in get_type_hints(ExecutionOptions).items():
        option = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=annotation,
        )
        parameters.append(option)
    return signature.replace(parameters=parameters)


def _check_count(name: str, value: Any) -> None:
    """Refuses what is neither None nor a whole number of 1 or more."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        text = f"{name}: expected a whole number of 1 or more, got {shown(value)}"
        raise StudyError(text, parameters=(name,))
