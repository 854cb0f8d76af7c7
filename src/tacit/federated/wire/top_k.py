"""Only the largest numbers travel. Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, 2018, algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.wire.stage import Load, Stage, rows_of


@dataclass(frozen=True)
class TopK(Stage, name="top_k"):
    """Sends the share of the numbers that is largest in size, and remembers the rest (Stich et al., 2018).

    v = x + memory;  sent: the k largest |v|, each with its place;  memory <- v - sent

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
        return (
            {name: torch.zeros_like(x) for name, x in rows_of(message).items()}
            if self.error_feedback
            else {}
        )

    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        owed = {
            name: x + memory[name] if name in memory else x for name, x in rows_of(message).items()
        }
        sent = {}
        for name, v in owed.items():
            places = v.abs().topk(self.kept(v.shape[1]), dim=1).indices
            sent[name] = torch.zeros_like(v).scatter(1, places, v.gather(1, places))
        rest = {
            name: (owed[name] - sent[name]).nan_to_num(0, 0, 0) for name in memory
        }  # one NaN is not for ever
        return {**message, **sent}, rest

    def owed(self, memory: Rows) -> Rows:
        return memory

    def load(self, load: Load, size: int) -> Load:
        k = min(load.values, self.kept(size))
        return load._replace(values=k, extra=load.extra + k * math.ceil(math.log2(size)))
