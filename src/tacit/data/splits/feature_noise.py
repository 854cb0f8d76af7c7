"""Feature skew. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (NIID-Bench), 2022,
noise-based."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import StudyError
from tacit.data.splits.iid import Iid
from tacit.data.splits.split import Split


@dataclass(frozen=True)
class FeatureNoise(Split, name="feature_noise"):
    """An IID split; client i = 1..N gets Gaussian noise N(0, sigma i/N) on its features.

    sigma i/N is the standard deviation, as in NIID-Bench's code; `unit: variance` takes it as the
    variance, as in its paper.
    """

    sigma: float = 0.1
    unit: Literal["deviation", "variance"] = "deviation"

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise StudyError(f"feature_noise.sigma: expected 0 or more, got {self.sigma}")

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        return Iid().assign(labels, clients, rng)

    def noise(self, clients: int) -> NDArray[np.float64]:
        levels = self.sigma * np.arange(1, clients + 1) / clients
        return levels if self.unit == "deviation" else np.sqrt(levels)
