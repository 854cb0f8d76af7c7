"""How the batches of a row's local steps are drawn from its samples.

>>> rng = torch.Generator().manual_seed(0)
>>> [len(batch) for batch in Epochs().batches(torch.arange(5), 2, 2, rng)]
[2, 2, 1, 2, 2, 1]
>>> len(Poisson().batches(torch.arange(5), 2, 2, rng))
6
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tacit.core.errors import StudyError, shown
from tacit.core.import_paths import import_object
from tacit.core.registry import Registered
from tacit.training.batches import (
    PackedBatches,
    epoch_batches,
    pack_batches,
    pack_epoch_batches,
    pass_size,
)


@dataclass(frozen=True)
class Sampling(Registered, family="samplings", home="tacit.training.sampling"):
    """Base of the ways to draw batches."""

    # whether every batch has batch_size samples, but for the rest at the end of a pass
    fixed_sizes: ClassVar[bool] = False
    # whether it may ignore the epochs and the batch size
    free: ClassVar[bool] = False

    @abstractmethod
    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        """One index tensor per step, of samples that `shard` names; a batch may be empty.

        `batch_size` is None where all samples form one batch.
        """

    def packed(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> PackedBatches:
        """The same batches as one matrix, for steps that are captured."""
        return pack_batches(self.batches(shard, epochs, batch_size, generator))

    def used(self, samples: int, batch_size: int | None) -> int:
        """How many of so many samples a pass uses, as far as that is known beforehand."""
        return samples

    @property
    def plain_passes(self) -> Epochs:
        """How the samples are drawn where plain passes over them are wanted, as in fine-tuning."""
        return Epochs()


@dataclass(frozen=True)
class Epochs(Sampling, name="epochs"):
    """Shuffled passes over the samples, cut into batches; a pass may end with a smaller one.

    `drop_last` leaves out that smaller one, as torch's DataLoader does. A client that has fewer
    samples than a batch keeps its only one.
    """

    drop_last: bool = False
    fixed_sizes: ClassVar[bool] = True

    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        return epoch_batches(shard, epochs, batch_size, generator, drop_last=self.drop_last)

    def packed(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> PackedBatches:
        return pack_epoch_batches(shard, epochs, batch_size, generator, drop_last=self.drop_last)

    def used(self, samples: int, batch_size: int | None) -> int:
        return pass_size(samples, batch_size, drop_last=self.drop_last)

    @property
    def plain_passes(self) -> Epochs:
        return self


@dataclass(frozen=True)
class Poisson(Sampling, name="poisson"):
    """Each sample joins each step's batch independently, with probability batch_size / samples; a
    batch may be empty.

    There are as many steps as passes over the samples in batches of that size would have. The
    analysis of private training by subsampling assumes such batches (Abadi et al., 2016).
    """

    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        count = len(shard)
        if not count:
            return ()
        if batch_size is None or batch_size >= count:
            return (shard,) * epochs
        steps = epochs * math.ceil(count / batch_size)
        probability = batch_size / count
        return tuple(self._draw_batch(shard, probability, generator) for _ in range(steps))

    def _draw_batch(self, shard: Tensor, probability: float, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(shard), generator=generator, dtype=torch.float64)
        positions = (draws < probability).nonzero()[:, 0]
        return shard[positions.to(shard.device)]


@dataclass(frozen=True)
class FunctionSampling(Sampling, name="function"):
    """Your own Python function, by import path: called with (shard, epochs, batch_size, generator).

    It returns a sequence of index tensors, one per step, each of samples that the shard has.
    """

    path: str
    free: ClassVar[bool] = True

    @property
    def calls(self) -> str | None:
        return self.path

    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        function = import_object(self.path)
        shard_copy = shard.clone()  # the function may shuffle in place
        arguments = (shard_copy, epochs, batch_size, generator)
        if not _accepts(function, arguments):
            raise StudyError(
                f"{self.path}: expected a function of (shard, epochs, batch_size, generator)"
            )
        batches = function(*arguments)
        if isinstance(batches, str) or not isinstance(batches, Sequence):
            raise StudyError(
                f"{self.path}: expected a sequence of index tensors, got {shown(batches)}"
            )
        return tuple(self._checked(batch, step, shard) for step, batch in enumerate(batches))

    def _checked(self, batch: Any, step: int, shard: Tensor) -> Tensor:
        where = f"{self.path}: batch {step}"
        if not _is_index(batch):
            raise StudyError(
                f"{where}: expected a tensor of whole numbers in one dimension, "
                f"got {_described(batch)}"
            )
        index: Tensor = batch.to(shard)
        if not torch.isin(index, shard).all():
            raise StudyError(
                f"{where}: names samples that are not in the shard; "
                "take them from it: shard[positions]"
            )
        return index


def _accepts(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a function can be called with these arguments, as far as its signature tells."""
    if not callable(function):
        return False
    with suppress(ValueError):  # functions written in C may have no signature
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            return False
    return True


def _is_index(batch: Any) -> bool:
    if not isinstance(batch, Tensor):
        return False
    return batch.dim() == 1 and batch.dtype in (torch.int32, torch.int64)


def _described(batch: Any) -> str:
    if not isinstance(batch, Tensor):
        return shown(batch)
    dtype = str(batch.dtype).removeprefix("torch.")
    return f"{dtype} of shape {tuple(batch.shape)}"
