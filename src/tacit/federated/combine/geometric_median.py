"""The geometric median.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, 2022, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.location import spatial_huber_location
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class GeometricMedian(Combiner, name="geometric_median"):
    """The point with the least sum of distances to the rows, by smoothed Weiszfeld steps
    (Pillutla et al., 2022).

    z <- sum_k b_k x_k / sum_k b_k,  b_k = 1 / max(smoothing, |x_k - z|),
    until no share b_k / sum b moves by 1e-10

    `smoothing` is a distance, as in the paper: updates that differ by less than that are averaged.
    """

    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        if not self.smoothing > 0:
            raise StudyError(
                f"geometric_median.smoothing: expected a number above 0, got {self.smoothing}"
            )

    def tolerates(self, replies: int) -> int:
        return (replies - 1) // 2

    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
        return spatial_huber_location(rows, self.smoothing)
