"""The base of the combiners."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.federated.combine.chunks import mean_of_rows
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class Combiner(Registered, family="combiners", home="tacit.federated.combine"):
    """Called as `combiner(rows, cohort)`: (K, P) -> (P,). Robust ones count all clients alike."""

    linear: ClassVar[bool] = False  # every row counts, however far out it lies
    is_mean: ClassVar[bool] = False  # it is cohort.average(rows), which sums are enough for
    needs_server_data: ClassVar[bool] = False  # cohort.server_loss, on samples set aside

    @property
    def quorum(self) -> int:
        """The fewest replies that it works with; fewer in a round leave the model as it was."""
        return 1

    def tolerates(self, replies: int) -> int:
        """How many liars it withstands among so many."""
        return 0

    def check(self, replies: int) -> None:
        """Raises StudyError, with the reason, where so many replies per round are too few."""
        if replies < self.quorum:
            raise StudyError(
                f"{self.spec()} needs {self.quorum} replies or more, got {replies} in a round"
            )

    def caution(self, replies: int) -> str | None:
        """What to expect where so many replies per round make the rule do less than it says."""
        return None

    @abstractmethod
    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor: ...


@dataclass(frozen=True)
class Selecting(Combiner):
    """Averages some of the rows, chosen on the clients' updates dx.

    The choice holds for the other entries of their messages too.
    """

    @abstractmethod
    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        """The indices of the rows to keep."""

    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
        return mean_of_rows(rows, cohort.choice)
