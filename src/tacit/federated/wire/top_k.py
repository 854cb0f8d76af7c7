"""Only the largest numbers travel.

Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, 2018, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.wire.stage import Load, Stage, rows_of


@dataclass(frozen=True)
class TopK(Stage, name="top_k"):
    """Sends only a `share` of the numbers, those largest in size, and remembers the rest
    (Stich et al., 2018).

    v = x + memory;  sent: the k largest |v|, each with its position;  memory <- v - sent

    Without `error_feedback` the rest is lost.
    """

    share: float = 0.01
    error_feedback: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise StudyError(f"top_k.share: expected a share above 0 and up to 1, got {self.share}")

    def kept(self, size: int) -> int:
        """k of so many numbers, at least one."""
        return max(1, math.floor(self.share * size + 1e-9))

    def init(self, message: Rows) -> Rows:
        if not self.error_feedback:
            return {}
        return {name: torch.zeros_like(x) for name, x in rows_of(message).items()}

    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        rows = rows_of(message)
        for name, rest in memory.items():
            rows[name] = rows[name] + rest
        sent = {name: self._largest(v) for name, v in rows.items()}
        unsent = {name: rows[name] - sent[name] for name in memory}
        next_memory = {name: rest.nan_to_num(0, 0, 0) for name, rest in unsent.items()}
        return {**message, **sent}, next_memory  # a NaN is forgotten, or it would stay for ever

    def _largest(self, v: Tensor) -> Tensor:
        """v with zeros for all but its k largest numbers. # (K, P) -> (K, P)"""
        k = self.kept(v.shape[1])
        positions = v.abs().topk(k, dim=1).indices
        numbers = v.gather(1, positions)
        return torch.zeros_like(v).scatter(1, positions, numbers)

    def owed(self, memory: Rows) -> Rows:
        return memory

    def load(self, load: Load, size: int) -> Load:
        k = min(load.values, self.kept(size))
        bits_of_position = math.ceil(math.log2(size))
        return load._replace(values=k, extra=load.extra + k * bits_of_position)
