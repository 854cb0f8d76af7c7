"""How the batches of a row's local steps are drawn from its samples.

>>> draw = torch.Generator().manual_seed(0)
>>> [len(batch) for batch in Epochs().batches(torch.arange(5), 2, 2, draw)]
[2, 2, 1, 2, 2, 1]
>>> len(Poisson().batches(torch.arange(5), 2, 2, draw))
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
from tacit.core.registry import Registered, import_object
from tacit.training.batches import PackedBatches, epoch_batches, pack_batches, pack_epoch_batches


@dataclass(frozen=True)
class Sampling(Registered, family="samplings", home="tacit.training.sampling"):
    """Base of the ways to draw batches."""

    fixed_sizes: ClassVar[bool] = (
        False  # of batches: batch_size and, at the end of a pass, what is left
    )
    free: ClassVar[bool] = False  # it need not go by the epochs and the batch size that it is given

    @abstractmethod
    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        """One index tensor per step, of the samples that `shard` names; a batch may be empty.

        `batch_size` is None where all samples are one batch.
        """

    def packed(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> PackedBatches:
        """The same batches as one matrix, for steps that are captured."""
        return pack_batches(self.batches(shard, epochs, batch_size, generator))


@dataclass(frozen=True)
class Epochs(Sampling, name="epochs"):
    """Shuffled passes over the samples, cut into batches; the last, short one of a pass is kept."""

    fixed_sizes: ClassVar[bool] = True

    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        return epoch_batches(shard, epochs, batch_size, generator)

    def packed(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> PackedBatches:
        return pack_epoch_batches(shard, epochs, batch_size, generator)


@dataclass(frozen=True)
class Poisson(Sampling, name="poisson"):
    """Each sample joins each step's batch by itself, with probability batch_size / samples; a batch may be empty.

    There are as many steps as batches of that size in so many passes. It is what the analysis of private training
    by subsampling assumes (Abadi et al., 2016).
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
        return tuple(self._joined(shard, batch_size / count, generator) for _ in range(steps))

    def _joined(self, shard: Tensor, probability: float, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(shard), generator=generator, dtype=torch.float64)
        places = (draws < probability).nonzero()[:, 0]
        return shard[places.to(shard.device)]


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
        given = (shard.clone(), epochs, batch_size, generator)  # a copy: it may shuffle in place
        if not takes(function, given):
            raise StudyError(
                f"{self.path}: expected a function of (shard, epochs, batch_size, generator)"
            )
        drawn = function(*given)
        if isinstance(drawn, str) or not isinstance(drawn, Sequence):
            raise StudyError(
                f"{self.path}: expected a sequence of index tensors, got {shown(drawn)}"
            )
        return tuple(self._checked(batch, step, shard) for step, batch in enumerate(drawn))

    def _checked(self, given: Any, step: int, shard: Tensor) -> Tensor:
        where = f"{self.path}: batch {step}"
        if (
            not isinstance(given, Tensor)
            or given.dim() != 1
            or given.dtype not in (torch.int32, torch.int64)
        ):
            raise StudyError(
                f"{where}: expected a tensor of whole numbers in one dimension, got {_named(given)}"
            )
        batch: Tensor = given.to(shard)
        if not torch.isin(batch, shard).all():
            raise StudyError(
                f"{where}: names samples that are not in the shard; take them from it: shard[places]"
            )
        return batch


def takes(function: Any, given: Sequence[Any]) -> bool:
    """Whether a function can be called with these arguments; of one that does not tell, it is believed."""
    if not callable(function):
        return False
    with suppress(ValueError):  # functions of C may have no signature
        try:
            inspect.signature(function).bind(*given)
        except TypeError:
            return False
    return True


def _named(batch: Any) -> str:
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} of shape {tuple(batch.shape)}"
    return shown(batch)
