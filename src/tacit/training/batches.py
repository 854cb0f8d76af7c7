"""Which samples a client sees at each of its local steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

Plan = Sequence[Tensor]  # one index tensor per step
Counts = tuple[int, ...] | Tensor


@dataclass(frozen=True)
class PackedBatches:
    """A plan as one matrix, its batches padded to the longest; of step s, the first `counts[s]` are real."""

    index: Tensor  # (steps, B)
    counts: Tensor  # (steps,)

    def __len__(self) -> int:
        return len(self.index)

    def first(self, steps: int) -> PackedBatches:
        return PackedBatches(self.index[:steps], self.counts[:steps])


@dataclass(frozen=True)
class ListedBatches:
    """A plan as one index tensor per step, where nothing is padded."""

    steps: Plan

    def __len__(self) -> int:
        return len(self.steps)

    def first(self, steps: int) -> ListedBatches:
        return ListedBatches(self.steps[:steps])


Batches = PackedBatches | ListedBatches  # of one row, in the form that its trainer wants


@dataclass(frozen=True)
class Samples:
    """All samples that rows are trained on. Pictures may be bytes: a float is byte / scale, or 2 (byte / scale) - 1."""

    x: Tensor  # (n, ...)
    y: Tensor  # (n,), or (n, classes) where targets are soft
    scale: float = 1.0
    signed: bool = False  # from -1 to 1, not from 0
    packed: bool = False  # pictures are channels-last, as `fused.py` has them
    channels: int = 0  # that they have, if so

    @classmethod
    def compact(cls, x: Tensor, y: Tensor) -> Samples:
        """As bytes, where every number is a whole number of 255ths: a fourth of the memory."""
        if x.dtype != torch.float32 or not x.numel():
            return cls(x, y)
        signed = bool(x.min() < 0)
        pixels = (x + 1) / 2 if signed else x
        made = cls((pixels * 255).round().clamp(0, 255).to(torch.uint8), y, 255.0, signed)
        return made if torch.equal(made.take(slice(None)), x) else cls(x, y)

    def take(self, index: Tensor | slice) -> Tensor:
        """The features of these samples, as floats, in whatever order they are kept."""
        found = self.x[index]
        if self.x.dtype != torch.uint8:
            return found
        pixels = found.float() / torch.full(
            (), self.scale, device=found.device
        )  # by a tensor: a true division
        return (pixels - 0.5) * 2 if self.signed else pixels

    def features(self, index: Tensor | slice) -> Tensor:
        """The features of these samples, as the data set has them."""
        found = self.take(index)
        return found[..., : self.channels].movedim(-1, -3) if self.packed else found

    def batch(self, rows: Sequence[Tensor]) -> Batch:
        """One batch per row, of the samples that its index tensor names; a row may have none."""
        index = pad_sequence(list(rows), batch_first=True).to(self.x.device)
        counts = torch.tensor([len(row) for row in rows], device=self.x.device)
        return Batch(self.take(index), self.y[index], counts, self.packed)

    def pack(self, fill: Callable[[Tensor], Tensor]) -> Samples:
        """Pictures channels-last, filled up with channels of zeros."""
        return replace(self, x=fill(self.x), packed=True, channels=self.x.shape[1])


@dataclass(frozen=True)
class Batch:
    """One batch per row, padded to the longest; row k's first `counts[k]` samples are real."""

    x: Tensor  # (K, B, ...)
    y: Tensor  # (K, B), of floats in a regression, or (K, B, classes) where targets are soft
    counts: Counts  # (K,), on the device where the step must not wait for the host
    packed: bool = False  # pictures are channels-last, as `fused.py` has them

    def column(self, device: torch.device) -> Tensor:
        """The counts as a column. # (K, 1)"""
        return (
            self.counts
            if isinstance(self.counts, Tensor)
            else torch.tensor(self.counts, device=device)
        )[:, None]

    def row(self, k: int) -> tuple[Tensor, Tensor]:
        """Row k's real samples."""
        x, y, count = self.x[k], self.y[k], int(self.counts[k])
        return (x, y) if count == len(y) else (x[:count], y[:count])


def epoch_batches(
    samples: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
) -> Plan:
    """Shuffled passes over `samples`, cut into batches; the last, short one of a pass is kept. None: one full batch.

    >>> plan = epoch_batches(torch.arange(5), 2, 2, torch.Generator().manual_seed(0))
    >>> [len(batch) for batch in plan]
    [2, 2, 1, 2, 2, 1]
    """
    if not len(samples):
        return ()
    passes = _passes(samples, epochs, batch_size, generator)
    return tuple(batch for order in passes for batch in order.split(batch_size or len(order)))


def pack_epoch_batches(
    samples: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
) -> PackedBatches:
    """The same plan as `epoch_batches` makes, in one matrix.

    >>> plan = pack_epoch_batches(torch.arange(5), 2, 2, torch.Generator().manual_seed(0))
    >>> plan.index.shape, plan.counts.tolist()
    (torch.Size([6, 2]), [2, 2, 1, 2, 2, 1])
    """
    size = min(batch_size or len(samples), max(len(samples), 1))
    over = -len(samples) % size if len(samples) else 0
    passes = [
        pad(order, (0, over)).view(-1, size)
        for order in _passes(samples, epochs, batch_size, generator)
    ]
    counts = torch.full((sum(map(len, passes)),), size)
    if over:
        counts[len(passes[0]) - 1 :: len(passes[0])] = size - over
    return PackedBatches(torch.cat(passes) if passes else samples.new_zeros(0, size), counts)


def pack_batches(plan: Plan) -> PackedBatches:
    """Any plan as one matrix; its batches may be empty.

    >>> pack_batches([torch.tensor([4, 2]), torch.tensor([], dtype=torch.int64)]).counts.tolist()
    [2, 0]
    """
    lengths = [len(batch) for batch in plan]
    if not any(lengths):
        return PackedBatches(
            torch.zeros(len(lengths), 1, dtype=torch.int64),
            torch.tensor(lengths, dtype=torch.int64),
        )
    return PackedBatches(pad_sequence(list(plan), batch_first=True), torch.tensor(lengths))


def _passes(
    samples: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
) -> list[Tensor]:
    if not len(samples):
        return []
    if batch_size is None or batch_size >= len(samples):
        return [samples] * epochs  # the order within a full batch does not matter
    return [samples[torch.randperm(len(samples), generator=generator)] for _ in range(epochs)]


def gather(x: Tensor, y: Tensor, rows: Sequence[Tensor]) -> Batch:
    """The samples that each row's index tensor names."""
    counts = tuple(len(row) for row in rows)
    index = (
        rows[0][None] if len(rows) == 1 else pad_sequence(list(rows), batch_first=True)
    )  # (K, B)
    flat = index.reshape(-1)  # index_select takes a fifth of the time of x[index]
    return Batch(
        x.index_select(0, flat).view(*index.shape, *x.shape[1:]),
        y.index_select(0, flat).view(*index.shape, *y.shape[1:]),
        counts,
    )
