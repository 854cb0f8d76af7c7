"""What a combiner may ask of the round's replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

ServerLoss = Callable[[Tensor, int], Tensor]  # dx rows (K, P) and a sample size -> losses (K, 1)


class Replies(Protocol):
    """One row per client that replied; `tacit.federated.cohort.Cohort` is one."""

    @property
    def server_loss(self) -> ServerLoss | None:
        """The loss of updates on the server's own data; None where it has no data."""

    @property
    def choice(self) -> Tensor:
        """The rows that a selecting combiner keeps."""

    def average(self, rows: Tensor) -> Tensor:
        """The weighted mean of one row per client. # (K, P) -> (P,)"""
