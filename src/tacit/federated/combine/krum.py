"""Krum and Multi-Krum. Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent, 2017, section 4."""

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
    """The row closest to its n - f - 2 nearest neighbours; withstands `f` liars of n > 2f + 2 (Blanchard et al., 2017).

    s_i = sum of |x_i - x_j|^2 over the n - f - 2 nearest j != i;  the row of least s, the lowest index on ties
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
                f"{self.name} withstands f liars among n > 2f + 2 replies: with f={self.f} it needs {self.quorum},"
                f" and a round of this study has {replies}; lower f, or have more clients"
            )

    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        return krum_scores(dx, self.f).argmin()[None]


@dataclass(frozen=True)
class MultiKrum(Krum, name="multi_krum"):
    """The mean of the `m` rows with the least Krum scores, n - f - 2 of n unless given (Blanchard et al., 2017)."""

    m: int | None = None

    def __post_init__(self) -> None:
        if self.f < 0 or (self.m is not None and self.m < 1):
            raise StudyError(
                f"multi_krum: expected f of 0 or more and m of 1 or more, got {self.f} and {self.m}"
            )

    def check(self, replies: int) -> None:
        super().check(replies)
        if self.m is not None and self.m > replies - self.f:
            raise StudyError(
                f"multi_krum.m: {self.m} of {replies} hold liars; use m up to n - f = {replies - self.f}"
            )

    def choose(self, dx: Tensor, cohort: Replies) -> Tensor:
        scores = krum_scores(dx, self.f)
        m = (
            len(dx) - self.f - 2 if self.m is None else min(self.m, len(dx) - self.f)
        )  # fewer may have replied
        best = scores.argsort(stable=True)[:m]
        kept = best[scores[best].isfinite()]
        return kept.sort()[0] if len(kept) else best[:1]


def krum_scores(rows: Tensor, f: int) -> Tensor:
    """Each row's sum of squared distances to its n - f - 2 nearest. # (n, P) -> (n,), in double precision

    Distances come from one product X X^T. In single precision that loses them where rows differ by much less than
    their length, so the rows are centred, on a typical one first and again on the best if that was too far away.
    """
    if len(rows) <= 2 * f + 2:
        raise StudyError(f"krum needs n > 2f + 2 rows, got n={len(rows)} for f={f}")
    lengths, nearest = row_lengths(rows), len(rows) - f - 2
    finite, centre, precision = lengths.isfinite(), typical(lengths), torch.finfo(rows.dtype).eps
    for attempt in range(2):
        products = gram(rows, rows[centre])
        squares = products.diagonal()
        scores = _scores((squares[:, None] + squares - 2 * products).clamp(min=0), finite, nearest)
        best = scores.argmin()
        lost = scores[best] / nearest < 1e4 * precision * squares[best]
        if attempt or not lost:
            break
        centre = best
    return scores


def _scores(distances: Tensor, finite: Tensor, nearest: int) -> Tensor:
    distances = distances.masked_fill(~(finite[:, None] & finite), torch.inf).fill_diagonal_(
        torch.inf
    )  # not itself
    return distances.topk(nearest, dim=1, largest=False).values.sum(1)
