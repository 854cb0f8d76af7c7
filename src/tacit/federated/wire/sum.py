"""A server that sees sums only, in the clear: the shape that secure sums have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tacit.core.rows import Rows
from tacit.federated.wire.stage import Load, Stage


@dataclass(frozen=True)
class Sum(Stage, name="sum"):
    """The server learns the sum of the weighted messages, and no single one; nothing is encrypted.

    It shows in a study what still works under a secure sum: whatever needs single messages is
    refused. Sparse rows are sent in full, since their sum is not sparse.
    """

    summed: ClassVar[bool] = True

    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        return message, memory

    def load(self, load: Load, size: int) -> Load:
        return Load(size, load.full)
