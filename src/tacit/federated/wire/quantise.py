"""Fewer bits per number.

Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient Quantization
and Encoding, 2017, section 3.1, with the largest value of a bucket as its scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.wire.stage import Load, Stage, rows_of


@dataclass(frozen=True)
class Quantise(Stage, name="quantise"):
    """Rounds every number at random to one of 2^bits - 1 levels, without bias
    (Alistarh et al., 2017).

    Within a bucket of numbers, levels are even steps of max|x| / (2^(bits-1) - 1); zero stays zero.
    Each bucket sends its scale, 32 bits.
    """

    bits: Literal[8, 4] = 8
    bucket: int = 512

    def __post_init__(self) -> None:
        if self.bucket < 1:
            raise StudyError(f"quantise.bucket: expected 1 or more, got {self.bucket}")

    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        rngs = [torch.Generator().manual_seed(seed) for seed in seeds]
        rounded = {name: self._rounded(x, rngs) for name, x in rows_of(message).items()}
        return {**message, **rounded}, memory

    def load(self, load: Load, size: int) -> Load:
        buckets = math.ceil(size / self.bucket)
        scales = min(load.values, buckets)  # of buckets that hold anything
        return load._replace(bits=self.bits, extra=load.extra + 32 * scales)

    def _rounded(self, x: Tensor, rngs: Sequence[torch.Generator]) -> Tensor:
        levels = 2 ** (self.bits - 1) - 1
        count, size = x.shape
        padding = -size % self.bucket
        buckets = pad(x, (0, padding)).view(count, -1, self.bucket)
        scale = buckets.abs().amax(2, keepdim=True) / levels
        shape = buckets.shape[1:]
        noise = [torch.rand(shape, generator=rng, dtype=x.dtype) for rng in rngs]
        up_or_down = torch.stack(noise).to(x.device)
        level = torch.floor(buckets / scale + up_or_down).clamp(-levels, levels)
        rounded = torch.where(scale == 0, 0.0, level * scale)  # NaN stays NaN
        return rounded.view(count, -1)[:, :size]
