"""Independent and identically distributed parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.data.splits.split import Split


@dataclass(frozen=True)
class Iid(Split, name="iid"):
    """Every client gets an equal share of the shuffled samples."""

    alike: ClassVar[bool] = True

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        return np.array_split(rng.permutation(len(labels)), clients)
