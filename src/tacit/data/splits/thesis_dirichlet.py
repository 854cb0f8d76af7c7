"""Overlapping shards, for reproducing a study that drew them; not a partition of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import StudyError
from tacit.data.splits.split import Split


@dataclass(frozen=True)
class ThesisDirichlet(Split, name="thesis_dirichlet"):
    """Each client draws its own class proportions from Dir(beta) and then its samples from the full
    set.

    So shards overlap and leave samples out: with `share` 0.1, three clients hold 30 % of the set at
    most. It reproduces the code of "Privacy Preserving Machine Learning" (J. Sempere Hernández,
    2024); for everything else use `label_dirichlet`, the partition that the literature means.
    """

    beta: float = 0.5
    share: float = 0.1
    overlapping: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.beta > 0 and 0 < self.share <= 1):
            values = f"{self.beta} and {self.share}"
            raise StudyError(
                f"thesis_dirichlet: expected beta > 0 and 0 < share <= 1, got {values}"
            )

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        return [self._shard(by_class, rng) for _ in range(clients)]

    def _shard(self, by_class: list[Index], rng: np.random.Generator) -> Index:
        sizes = np.array([len(samples) for samples in by_class])
        concentration = np.full(len(sizes), self.beta)
        shares = np.nan_to_num(rng.dirichlet(concentration))
        wanted = np.round(shares * self.share * sizes.sum()).astype(int)
        counts = np.minimum(wanted, sizes)  # no class can give more samples than it has
        drawn: list[Index] = []
        for samples, count in zip(by_class, counts, strict=True):
            drawn.append(rng.choice(samples, count, replace=False))
        return np.concatenate(drawn)
