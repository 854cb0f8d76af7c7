"""Label skew by distribution. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (NIID-Bench), 2022,
p_k ~ Dir(beta)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import StudyError
from tacit.data.splits.split import Index, Split, cut, draw_until


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

    def assign(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> list[Index]:
        return draw_until(
            self.min_samples, lambda: self._draw(labels, clients, rng), f"label_dirichlet(beta={self.beta})"
        )

    def _draw(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> list[Index]:
        parts: list[Index] = [np.zeros(0, dtype=np.int64)] * clients
        for label in np.unique(labels):
            shares = rng.dirichlet(np.full(clients, self.beta))
            if self.balance:
                shares = shares * [len(part) < len(labels) / clients for part in parts]
            total = shares.sum()
            shares = shares / total if total > 0 else np.full(clients, 1 / clients)  # a tiny beta underflows
            samples = rng.permutation(np.flatnonzero(labels == label))
            parts = [np.concatenate(pair) for pair in zip(parts, cut(samples, shares), strict=True)]
        return parts
