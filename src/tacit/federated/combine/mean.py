"""The weighted mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class Mean(Combiner, name="mean"):
    """The mean of the clients' rows, weighted as the algorithm says: sum_k p_k x_k."""

    linear: ClassVar[bool] = True
    is_mean: ClassVar[bool] = True

    def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
        return cohort.average(rows)
