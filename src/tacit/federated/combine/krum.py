"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent, 2017, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.combine.chunks import gram, row_lengths, typical
from tacit.federated.combine.combiner import Selecting
from tacit.federated.combine.replies import Replies


@dataclass(frozen=True)
class Krum(Selecting, name="krum"):
    """The row closest to its n - f - 2 nearest neighbours; withstands `f` liars of n > 2f + 2
    (Blanchard et al., 2017).

    s_i = sum of |x_i - x_j|^2 over the n - f - 2 nearest j != i
    The row with the lowest s is returned; of equal ones, the first.
    """

    f: int = 1

    def __post_init__(self) -> None:
        if self.f < 0:
            raise StudyError(f"{self.name}.f: expected 0 or more, got {self.f}")

    @property
    def quorum(self) -> int:
        return 2 * self.f + 3

    def tolerates(self, replies: int) -> int:
        return self.f

    def check(self, replies: int) -> None:
        if replies < self.quorum:
            raise StudyError(
                f"{self.name} withstands f liars among n > 2f + 2 replies: with f={self.f} it needs"
                f" {self.quorum}, and a round of this study has {replies}; lower f, or use more"
                " clients"
            )

    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        return krum_scores(dx, self.f).argmin()[None]


@dataclass(frozen=True)
class MultiKrum(Krum, name="multi_krum"):
    """The mean of the `m` rows with the lowest Krum scores, by default n - f - 2 of n
    (Blanchard et al., 2017)."""

    m: int | None = None

    def __post_init__(self) -> None:
        if self.f < 0 or (self.m is not None and self.m < 1):
            raise StudyError(
                f"multi_krum: expected f of 0 or more and m of 1 or more, got {self.f} and {self.m}"
            )

    def check(self, replies: int) -> None:
        super().check(replies)
        honest = replies - self.f
        if self.m is not None and self.m > honest:
            raise StudyError(
                f"multi_krum.m: with m={self.m} of n={replies} replies, liars would be among them;"
                f" use m up to n - f = {honest}"
            )

    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        scores = krum_scores(dx, self.f)
        honest = len(dx) - self.f
        # Fewer may have replied than the study expects.
        m = honest - 2 if self.m is None else min(self.m, honest)
        best = scores.argsort(stable=True)[:m]
        finite = best[scores[best].isfinite()]
        if not len(finite):
            return best[:1]
        return finite.sort()[0]


def krum_scores(rows: Tensor, f: int) -> Tensor:
    """Each row's sum of squared distances to its n - f - 2 nearest, in double precision.

    Distances come from one product X X^T. In single precision that loses them where rows differ by
    much less than their length, so the rows are centred: on a typical one first, and again on the
    best if that was too far away. # (n, P) -> (n,)
    """
    if len(rows) <= 2 * f + 2:
        raise StudyError(f"krum needs n > 2f + 2 rows, got n={len(rows)} for f={f}")
    lengths = row_lengths(rows)
    finite = lengths.isfinite()
    nearest = len(rows) - f - 2
    precision = torch.finfo(rows.dtype).eps

    def scores_around(centre: Tensor) -> tuple[Tensor, Tensor]:
        """The scores, and the squared distances from the centre that rounding depends on."""
        products = gram(rows, rows[centre])
        squares = products.diagonal()
        distances = (squares[:, None] + squares - 2 * products).clamp(min=0)
        return _sums_of_nearest(distances, finite, nearest), squares

    scores, squares = scores_around(typical(lengths))
    best = scores.argmin()
    lost_in_rounding = scores[best] / nearest < 1e4 * precision * squares[best]
    if lost_in_rounding:
        scores, _ = scores_around(best)
    return scores


def _sums_of_nearest(distances: Tensor, finite: Tensor, nearest: int) -> Tensor:
    both_finite = finite[:, None] & finite
    distances = distances.masked_fill(~both_finite, torch.inf)
    distances.fill_diagonal_(torch.inf)  # no row is its own neighbour
    smallest = distances.topk(nearest, dim=1, largest=False).values
    return smallest.sum(1)
