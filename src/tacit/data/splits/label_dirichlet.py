"""Label skew by distribution. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (NIID-Bench), 2022,
p_k ~ Dir(beta)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import StudyError
from tacit.data.splits.split import Dealt, Index, Split, deal, draw_until


@dataclass(frozen=True)
class LabelDirichlet(Split, name="label_dirichlet"):
    """Each class is divided among the clients in proportions drawn from Dir(beta); a small beta is a strong skew.

    `balance` gives no more to a client that already has its even share of all samples, as NIID-Bench's code does.
    """

    beta: float = 0.5
    min_samples: int = 2
    balance: bool = False

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise StudyError(f"label_dirichlet.beta: expected a number above 0, got {self.beta}")

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        what = f"label_dirichlet(beta={self.beta})"
        return draw_until(
            self.min_samples, lambda: self._draw(by_class, clients, rng), clients, what
        )

    def _draw(self, by_class: list[Index], clients: int, rng: np.random.Generator) -> Dealt:
        parts: list[Dealt] = []
        sizes, total = np.zeros(clients, dtype=np.int64), sum(map(len, by_class))
        for samples in by_class:
            shares = rng.dirichlet(np.full(clients, self.beta))
            if self.balance:
                shares = shares * (sizes < total / clients)
            whole = shares.sum()
            shares = (
                shares / whole if whole > 0 else np.full(clients, 1 / clients)
            )  # a tiny beta underflows
            parts.append(deal(rng.permutation(samples), shares))
            sizes += np.bincount(parts[-1][1], minlength=clients)
        samples, owner = (np.concatenate(side) for side in zip(*parts, strict=True))
        return samples, owner
