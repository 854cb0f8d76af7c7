"""Code that a user might write: functions that draw batches, good ones and bad ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def backwards(
    shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
) -> Sequence[Tensor]:
    """Never shuffled, the last samples first, and an empty batch at the end."""
    size = batch_size or max(len(shard), 1)
    batches = list(shard.flip(0).split(size))
    return [*batches * epochs, shard[:0]]


def in_place(shard: Tensor, *_: object) -> list[Tensor]:
    """Changes its argument, as scripts do."""
    shard.copy_(shard.roll(1))
    return [shard[:2]]


def always_empty(shard: Tensor, *_: object) -> list[Tensor]:
    return [shard[:0], shard[:0]]


NO_FUNCTION = 3


def of_two(shard: Tensor, epochs: int) -> list[Tensor]:
    return [shard] * epochs


def a_number(*_: object) -> int:
    return 3


def a_list_of_lists(*_: object) -> list[list[int]]:
    return [[1]]


def strangers(shard: Tensor, *_: object) -> list[Tensor]:
    return [shard, shard + 1]


def floats(shard: Tensor, *_: object) -> list[Tensor]:
    return [shard.float()]
