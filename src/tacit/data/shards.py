"""The indices of each client's samples, in one array.

To make a hundred thousand small tensors would take longer than to use them.

>>> shards = Shards.of([np.array([4, 7]), np.array([1])])
>>> len(shards), shards[0].tolist(), shards.samples
(2, [4, 7], 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T", NDArray[np.int64], Tensor)


@dataclass(frozen=True, eq=False)
class Shards(Sequence[T], Generic[T]):
    """One array of indices, client after client; `shards[k]` is a view of client k's."""

    packed: T  # (n,)
    starts: NDArray[np.int64]  # (clients + 1,): where each client's indices begin, and then n

    @classmethod
    def of(cls, shards: Sequence[NDArray[np.int64]]) -> Shards[NDArray[np.int64]]:
        """Packs one array per client."""
        starts = np.cumsum([0, *map(len, shards)])
        return Shards(np.concatenate(shards), starts)

    @property
    def samples(self) -> int:
        """How many samples all clients have together."""
        return len(self.packed)

    def on(self, device: torch.device, offset: int = 0) -> Shards[Tensor]:
        """The same as tensors on a device; `offset` is added to every index."""
        index = self.packed + offset if offset else self.packed
        return Shards(torch.as_tensor(index, device=device), self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, client: int) -> T: ...
    @overload
    def __getitem__(self, client: slice) -> list[T]: ...
    def __getitem__(self, client: int | slice) -> T | list[T]:
        clients = range(len(self))
        if isinstance(client, slice):
            return [self[k] for k in clients[client]]
        return self.packed[self._span(clients[client])]

    def replaced(self, shards: Mapping[int, Tensor]) -> Shards[Tensor]:
        """The same with other samples, as many as before, for some clients."""
        index = torch.as_tensor(self.packed).clone()
        for client, shard in shards.items():
            index[self._span(client)] = shard
        return Shards(index, self.starts)

    def _span(self, client: int) -> slice:
        return slice(int(self.starts[client]), int(self.starts[client + 1]))
