"""The division that the data come with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.data.splits.split import Split, by_owner


@dataclass(frozen=True)
class ByClient(Split, name="by_client"):
    """Each client gets its own rows, as a column of the table says:
    `dataset: {name: table, ..., client: hospital}`."""

    by: ClassVar[Literal["labels", "owners"]] = "owners"

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        owners = int(labels.max()) + 1
        if owners > clients:
            raise DataError(f"the rows name {owners} clients; set clients: {owners}")
        return by_owner(np.arange(len(labels)), labels, clients)
