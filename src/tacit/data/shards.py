"""Each client's samples, packed: a hundred thousand small tensors would take longer to make than to use.

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
    """One array of indices, client after client, and where each client's begin; `shards[k]` is a view of it."""

    packed: T  # (n,)
    starts: NDArray[np.int64]  # (clients + 1,), the last one is n

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int64]]) -> Shards[NDArray[np.int64]]:
        """Packs one array per client."""
        starts = np.cumsum([0, *map(len, parts)])
        return Shards(np.concatenate(parts), starts)

    @property
    def samples(self) -> int:
        """Of all clients together."""
        return len(self.packed)

    def on(self, device: torch.device, offset: int = 0) -> Shards[Tensor]:
        """The same as tensors on a device; `offset` is added to every index."""
        return Shards(
            torch.as_tensor(self.packed + offset if offset else self.packed, device=device),
            self.starts,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self[k] for k in places]
        return self.packed[int(self.starts[places]) : int(self.starts[places + 1])]

    def replaced(self, parts: Mapping[int, Tensor]) -> Shards[Tensor]:
        """With other samples, as many as before, for some clients."""
        index = torch.as_tensor(self.packed).clone()
        for client, part in parts.items():
            index[int(self.starts[client]) : int(self.starts[client + 1])] = part
        return Shards(index, self.starts)
