"""What plays the runs of one kind, round by round.

There is one file per engine in `kinds/`, and a kind of run names its file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor

from tacit.core.registry import import_folder
from tacit.data.dataset import Dataset
from tacit.study.run import Run

Record = dict[str, Any]  # of a round, for the history


class Engine(ABC):
    """Base of the engines. `kind` is the file's name."""

    kinds: ClassVar[dict[str, type[Engine]]] = {}
    states: Sequence[Any]

    def __init_subclass__(cls, kind: str) -> None:
        super().__init_subclass__()
        cls.kinds[kind] = cls

    @abstractmethod
    def __init__(
        self,
        runs: Sequence[tuple[str, Run]],
        dataset: Dataset,
        public: Dataset | None = None,
        **options: Any,
    ) -> None: ...

    @property
    def going(self) -> list[Any]:
        """The runs that have not ended."""
        return [state for state in self.states if state.status == "running"]

    @abstractmethod
    def play_round(self) -> Iterator[tuple[Record, float]]:
        """One round of every run that is going: its record for the history, and its seconds."""

    @abstractmethod
    def saved(self, *, portable: bool = False) -> list[dict[str, Any]]:
        """For a checkpoint, one entry per run.

        A `portable` one can be restored without the files of the clients' memories.
        """

    @abstractmethod
    def checkpointed(self) -> None:
        """Says that what `saved` gave last has been written; older checkpoints are given up."""

    @abstractmethod
    def discard(self) -> None:
        """Removes the memories' files, once no checkpoint needs them."""

    @abstractmethod
    def assess(self, state: Any) -> dict[str, Any]:
        """What is to be known of the run's last model; see `assessment.py`."""

    @abstractmethod
    def state_dict(self, state: Any, client: int | None = None) -> dict[str, Tensor]:
        """The run's global model, or the one that a client uses, as torch saves models."""


def find_engine(kind: str) -> type[Engine]:
    """The engine of that name."""
    import_folder("tacit.simulation.kinds")
    return Engine.kinds[kind]
