"""Label skew by distribution. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos
(NIID-Bench), 2022, p_k ~ Dir(beta)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import StudyError
from tacit.data.splits.split import Dealt, Split, deal, draw_until


@dataclass(frozen=True)
class LabelDirichlet(Split, name="label_dirichlet"):
    """Each class is divided among the clients in proportions drawn from Dir(beta);
    a small beta gives a strong skew.

    `balance` gives no more to a client that already has its even share of all samples, as
    NIID-Bench's code does.
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
        name = f"label_dirichlet(beta={self.beta})"

        def draw() -> Dealt:
            return self._draw(by_class, clients, rng)

        return draw_until(self.min_samples, draw, clients, name)

    def _draw(self, by_class: list[Index], clients: int, rng: np.random.Generator) -> Dealt:
        total = sum(len(members) for members in by_class)
        sizes = np.zeros(clients, dtype=np.int64)
        dealt_samples: list[Index] = []
        dealt_owners: list[Index] = []
        for members in by_class:
            shares = rng.dirichlet(np.full(clients, self.beta))
            if self.balance:
                shares = shares * (sizes < total / clients)
            samples, owner = deal(rng.permutation(members), _normalise(shares))
            sizes += np.bincount(owner, minlength=clients)
            dealt_samples.append(samples)
            dealt_owners.append(owner)
        return np.concatenate(dealt_samples), np.concatenate(dealt_owners)


def _normalise(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    total = float(shares.sum())
    if total > 0:
        return shares / total
    return np.full(len(shares), 1 / len(shares))  # with a tiny beta all shares are rounded to 0
