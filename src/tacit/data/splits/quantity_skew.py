"""Quantity skew. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (NIID-Bench), 2022,
q ~ Dir(beta)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import StudyError
from tacit.data.splits.split import Dealt, Split, deal, draw_until


@dataclass(frozen=True)
class QuantitySkew(Split, name="quantity_skew"):
    """Clients differ in size only: shares of the shuffled samples are drawn from Dir(beta)."""

    beta: float = 0.5
    min_samples: int = 2
    uneven_sizes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise StudyError(f"quantity_skew.beta: expected a number above 0, got {self.beta}")

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        name = f"quantity_skew(beta={self.beta})"
        concentration = np.full(clients, self.beta)

        def draw() -> Dealt:
            shares = np.nan_to_num(rng.dirichlet(concentration))
            return deal(rng.permutation(len(labels)), shares)

        return draw_until(self.min_samples, draw, clients, name)
