"""Which samples a client sees at each of its local steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

BatchIndices = Sequence[Tensor]  # the samples of a row's batches: one index tensor per step
SampleCounts = tuple[int, ...] | Tensor


@dataclass(frozen=True)
class PackedBatches:
    """A row's batches as one matrix, padded to the longest batch.

    Of step s, the first `counts[s]` indices are real.
    """

    index: Tensor  # (steps, B)
    counts: Tensor  # (steps,)

    def __len__(self) -> int:
        return len(self.index)

    def first(self, steps: int) -> PackedBatches:
        return PackedBatches(self.index[:steps], self.counts[:steps])


@dataclass(frozen=True)
class ListedBatches:
    """A row's batches as one index tensor per step, without padding."""

    steps: BatchIndices

    def __len__(self) -> int:
        return len(self.steps)

    def first(self, steps: int) -> ListedBatches:
        return ListedBatches(self.steps[:steps])


Batches = PackedBatches | ListedBatches  # of one row, in the form that its trainer wants


@dataclass(frozen=True)
class Samples:
    """All samples that rows are trained on.

    Pictures may be stored as bytes. A byte stands for the float byte / scale or, where the pixels
    are signed, for 2 (byte / scale) - 1.
    """

    x: Tensor  # (n, ...)
    y: Tensor  # (n,), or (n, classes) where targets are soft
    scale: float = 1.0
    signed: bool = False  # pixels lie between -1 and 1, not between 0 and 1
    packed: bool = False  # pictures are stored as `KernelNetwork.pack` stores them
    channels: int = 0  # of the packed pictures, before they were filled up

    @classmethod
    def compact(cls, x: Tensor, y: Tensor) -> Samples:
        """The samples as bytes if every number is a multiple of 1/255: a fourth of the memory."""
        plain = cls(x, y)
        if x.dtype != torch.float32 or not x.numel():
            return plain
        signed = bool(x.min() < 0)
        pixels = (x + 1) / 2 if signed else x
        as_bytes = (pixels * 255).round().clamp(0, 255).to(torch.uint8)
        compact = cls(as_bytes, y, 255.0, signed)
        is_exact = torch.equal(compact.take(slice(None)), x)
        return compact if is_exact else plain

    @property
    def is_plain(self) -> bool:
        """Whether samples are as the data set has them: neither bytes nor packed pictures."""
        return self.scale == 1.0 and not self.packed

    def plain(self) -> Samples:
        """The samples as the data set has them."""
        if self.is_plain:
            return self
        return Samples(self.features(slice(None)), self.y)

    def to(self, device: torch.device) -> Samples:
        """The samples on this device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def take(self, index: Tensor | slice) -> Tensor:
        """The features of these samples as floats, in the memory order in which they are stored."""
        x = self.x[index]
        if self.x.dtype != torch.uint8:
            return x
        pixels = x.float()
        scale = torch.full((), self.scale, device=x.device)  # as a tensor: a true division
        pixels = pixels / scale
        return (pixels - 0.5) * 2 if self.signed else pixels

    def features(self, index: Tensor | slice) -> Tensor:
        """The features of these samples as the data set has them."""
        x = self.take(index)
        if not self.packed:
            return x
        return x[..., : self.channels].movedim(-1, -3)

    def batch(self, indices: Sequence[Tensor]) -> Batch:
        """One batch per row, of the samples that its index tensor names; a row may have none."""
        device = self.x.device
        index = pad_sequence(list(indices), batch_first=True).to(device)  # (K, B)
        counts = torch.tensor([len(row) for row in indices], device=device)
        return Batch(self.take(index), self.y[index], counts, self.packed)

    def pack(self, fill: Callable[[Tensor], Tensor]) -> Samples:
        """Pictures with channels last, filled up with channels of zeros."""
        return replace(self, x=fill(self.x), packed=True, channels=self.x.shape[1])


@dataclass(frozen=True)
class Batch:
    """One batch per row, padded to the longest; row k's first `counts[k]` samples are real."""

    x: Tensor  # (K, B, ...)
    y: Tensor  # (K, B), of floats in a regression, or (K, B, classes) where targets are soft
    counts: SampleCounts  # (K,), on the device where the step must not wait for the host
    packed: bool = False  # pictures are stored as `KernelNetwork.pack` stores them

    def column(self, device: torch.device) -> Tensor:
        """The counts as a column. # (K, 1)"""
        counts = self.counts
        if not isinstance(counts, Tensor):
            counts = torch.tensor(counts, device=device)
        return counts[:, None]

    def row(self, k: int) -> tuple[Tensor, Tensor]:
        """Row k's real samples."""
        x = self.x[k]
        y = self.y[k]
        count = int(self.counts[k])
        if count == len(y):
            return x, y
        return x[:count], y[:count]


def epoch_batches(
    samples: Tensor,
    epochs: int,
    batch_size: int | None,
    generator: torch.Generator,
    *,
    drop_last: bool = False,
) -> BatchIndices:
    """Shuffled passes over `samples`, cut into batches; the last of a pass may be shorter.

    With a batch size of None, each pass is one batch. `drop_last` leaves out a last batch that is
    shorter, unless it is the only one.

    >>> batches = epoch_batches(torch.arange(5), 2, 2, torch.Generator().manual_seed(0))
    >>> [len(batch) for batch in batches]
    [2, 2, 1, 2, 2, 1]
    """
    if not len(samples):
        return ()
    batches: list[Tensor] = []
    for order in _passes(samples, epochs, batch_size, generator, drop_last=drop_last):
        batches += order.split(batch_size or len(order))
    return tuple(batches)


def pack_epoch_batches(
    samples: Tensor,
    epochs: int,
    batch_size: int | None,
    generator: torch.Generator,
    *,
    drop_last: bool = False,
) -> PackedBatches:
    """The batches of `epoch_batches` as one matrix.

    >>> packed = pack_epoch_batches(torch.arange(5), 2, 2, torch.Generator().manual_seed(0))
    >>> packed.index.shape, packed.counts.tolist()
    (torch.Size([6, 2]), [2, 2, 1, 2, 2, 1])
    """
    size = min(batch_size or len(samples), max(len(samples), 1))
    orders = _passes(samples, epochs, batch_size, generator, drop_last=drop_last)
    if not orders:
        return PackedBatches(samples.new_zeros(0, size), torch.full((0,), size))
    padding = -len(orders[0]) % size
    passes = [pad(order, (0, padding)).view(-1, size) for order in orders]
    steps = len(passes[0])  # of one pass
    counts = torch.full((steps * len(passes),), size)
    if padding:
        counts[steps - 1 :: steps] = size - padding
    return PackedBatches(torch.cat(passes), counts)


def pack_batches(batches: BatchIndices) -> PackedBatches:
    """Any batches as one matrix; some of them may be empty.

    >>> pack_batches([torch.tensor([4, 2]), torch.tensor([], dtype=torch.int64)]).counts.tolist()
    [2, 0]
    """
    lengths = [len(batch) for batch in batches]
    counts = torch.tensor(lengths, dtype=torch.int64)
    if not any(lengths):
        index = torch.zeros(len(lengths), 1, dtype=torch.int64)
        return PackedBatches(index, counts)
    return PackedBatches(pad_sequence(list(batches), batch_first=True), counts)


def _passes(
    samples: Tensor,
    epochs: int,
    batch_size: int | None,
    generator: torch.Generator,
    *,
    drop_last: bool,
) -> list[Tensor]:
    """The samples in the order of each pass over them."""
    if not len(samples):
        return []
    if batch_size is None or batch_size >= len(samples):
        return [samples] * epochs  # the order within a full batch does not matter
    used = pass_size(len(samples), batch_size, drop_last=drop_last)
    orders = []
    for _ in range(epochs):
        shuffled = torch.randperm(len(samples), generator=generator)
        orders.append(samples[shuffled[:used]])
    return orders


def pass_size(samples: int, batch_size: int | None, *, drop_last: bool) -> int:
    """How many of the samples a pass uses: all, or as many as fill batches.

    >>> pass_size(33, 32, drop_last=True), pass_size(20, 32, drop_last=True)
    (32, 20)
    """
    if not drop_last or batch_size is None or samples < batch_size:
        return samples
    return samples - samples % batch_size


def gather(x: Tensor, y: Tensor, indices: Sequence[Tensor]) -> Batch:
    """One batch per row, of the samples that its index tensor names."""
    counts = tuple(len(row) for row in indices)
    index = _padded(indices)  # (K, B)
    flat = index.reshape(-1)  # index_select takes a fifth of the time of x[index]
    batch_x = x.index_select(0, flat).view(*index.shape, *x.shape[1:])
    batch_y = y.index_select(0, flat).view(*index.shape, *y.shape[1:])
    return Batch(batch_x, batch_y, counts)


def _padded(indices: Sequence[Tensor]) -> Tensor:
    """Index tensors as one matrix, padded to the longest."""
    if len(indices) == 1:
        return indices[0][None]
    return pad_sequence(list(indices), batch_first=True)
