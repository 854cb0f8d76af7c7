"""Zeno.

Xie, Koyejo, Gupta: Zeno: Distributed Stochastic Gradient Descent with Suspicion-based
Fault-tolerance, 2019, definitions 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.combine.chunks import row_lengths
from tacit.federated.combine.combiner import Selecting
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class Zeno(Selecting, name="zeno"):
    """The mean of all but the `b` updates that lower the loss on the server's own data the least
    (Xie et al., 2019).

    score(u) = f_r(x) - f_r(x - gamma u) - rho |u|^2 for an update dx = -gamma u
    The n - b best are averaged.

    f_r is the loss on `batch_size` samples, drawn each round from those set aside for the server
    before the split. `norm: mean` takes the mean of u^2 in place of its sum, as the authors' code
    does: rho then does not grow with P.
    """

    b: int = 1
    rho: float = 0.0005
    gamma: float = 0.1
    batch_size: int = 64
    norm: Literal["sum", "mean"] = "sum"
    needs_server_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.b < 0 or self.batch_size < 1:
            raise StudyError(
                "zeno: expected b of 0 or more and batch_size of 1 or more,"
                f" got {self.b}, {self.batch_size}"
            )
        if not self.rho >= 0 or not self.gamma > 0:
            raise StudyError(
                "zeno: expected rho of 0 or more and gamma above 0,"
                f" got {self.rho} and {self.gamma}"
            )

    @property
    def quorum(self) -> int:
        return self.b + 1

    def tolerates(self, replies: int) -> int:
        return self.b

    def check(self, replies: int) -> None:
        if replies < self.quorum:
            raise StudyError(
                f"zeno leaves out b={self.b} of the {replies} replies in a round; use b < {replies}"
            )

    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        order = self.scores(dx, cohort).argsort(descending=True, stable=True)
        best = order[: len(dx) - self.b]
        return best.sort()[0]

    def scores(self, dx: Tensor, cohort: Replies) -> Tensor:
        """Each update's descent on the server's sample, less a penalty on its size.

        (K, P) -> (K,)
        """
        if cohort.server_loss is None:
            raise StudyError(
                "zeno judges updates on the server's own data;"
                " set server_samples, such as server_samples: 100"
            )
        no_update = torch.zeros_like(dx[:1])
        before = cohort.server_loss(no_update, self.batch_size)[:, 0].double()
        after = cohort.server_loss(dx, self.batch_size)[:, 0].double()  # on the same sample
        squares = (row_lengths(dx).double() / self.gamma) ** 2
        penalty = self.rho * squares
        if self.norm == "mean":
            penalty = penalty / dx.shape[1]
        return (before - after - penalty).nan_to_num(nan=-torch.inf)
