"""Coordinate-wise median and trimmed mean.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates, 2018, definitions 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.combine.chunks import reduce_sorted
from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class Median(Combiner, name="median"):
    """The median of each coordinate; of an even number, the mean of the two in the middle
    (Yin et al., 2018)."""

    def tolerates(self, replies: int) -> int:
        return (replies - 1) // 2

    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
        low = (len(rows) - 1) // 2
        high = len(rows) // 2

        def middle(ordered: Tensor) -> Tensor:
            return (ordered[:, low] + ordered[:, high]) / 2

        return reduce_sorted(rows, middle)


@dataclass(frozen=True)
class TrimmedMean(Combiner, name="trimmed_mean"):
    """The mean of each coordinate without its b largest and b smallest values, b = floor(beta n)
    (Yin et al., 2018)."""

    beta: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 0.5:
            raise StudyError(
                f"trimmed_mean.beta: expected a share from 0 to below 0.5, got {self.beta}"
            )

    def trimmed(self, replies: int) -> int:
        """b, how many values are dropped on each side."""
        return math.floor(self.beta * replies + 1e-9)  # 0.29 * 100 is 28.999...

    def tolerates(self, replies: int) -> int:
        return self.trimmed(replies)

    def caution(self, replies: int) -> str | None:
        if not self.beta or self.trimmed(replies):
            return None
        return (
            f"trimmed_mean drops floor(beta n) replies on each side, which is none of {replies};"
            " use a larger beta"
        )

    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
        n = len(rows)
        b = self.trimmed(n)
        if b == 0:
            return rows.mean(0)

        def mean_of_middle(ordered: Tensor) -> Tensor:
            return ordered[:, b : n - b].mean(1)

        return reduce_sorted(rows, mean_of_middle)
