"""Divides a data set among clients: the server's sample first, then the split, then each client's local test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError
from tacit.core.seeds import generator, numpy_generator
from tacit.data.shards import Shards
from tacit.data.splits.split import Index, Split


@dataclass(frozen=True)
class Partition:
    """Who holds which samples of the training set."""

    train: Shards[Index]
    test: Shards[Index]  # each client's own
    server: Index  # set aside before the split
    noise: NDArray[np.float64]  # standard deviation per client
    names: tuple[str, ...] = ()  # the clients', as the data have them, or their numbers


def divide(
    labels: NDArray[np.int64],
    split: Split,
    clients: int,
    seed: int,
    *,
    owner: NDArray[np.int64] | None = None,
    owners: tuple[str, ...] = (),
    column: str | None = None,
    server_samples: int = 0,
    local_test: float = 0.1,
) -> Partition:
    """Applies a split. Each client keeps a share `local_test` of its samples for itself, to test on.

    `owner` says whose each sample is, for a split that divides by owners; `owners` are their names in this `column`.
    """
    keys = labels if split.by == "labels" else _checked_owner(owner, owners, column, split, clients)
    if not 0 <= server_samples < len(labels):
        raise DataError(
            f"server_samples: expected less than the {len(labels)} samples there are, got {server_samples}"
        )
    order = numpy_generator(seed, "server sample").permutation(len(labels))
    server, rest = np.sort(order[:server_samples]), np.sort(order[server_samples:])
    parts = (rest[part] for part in split(keys[rest], clients, numpy_generator(seed, "split")))
    pairs = [
        _set_aside(part, local_test, numpy_generator(seed, "local test", k))
        for k, part in enumerate(parts)
    ]
    train, test = (Shards.of(side) for side in zip(*pairs, strict=True))
    names = owners if split.by == "owners" else tuple(str(client) for client in range(clients))
    return Partition(train, test, server, split.noise(clients), names)


def _checked_owner(
    owner: NDArray[np.int64] | None,
    owners: tuple[str, ...],
    column: str | None,
    split: Split,
    clients: int,
) -> NDArray[np.int64]:
    """Whose each sample is, if the data say so and name as many clients as the study has."""
    if owner is None:
        wanted = "dataset: {name: table, ..., client: hospital}"
        raise DataError(
            f"{split.name} needs data that say whose each row is; name that column, such as {wanted}"
        )
    if len(owners) != clients:
        where = f"the column {column} names" if column else "the data name"
        raise DataError(f"{where} {len(owners)} clients; set clients: {len(owners)}")
    return owner


def add_noise(x: Tensor, partition: Partition, seed: int) -> Tensor:
    """The features as the clients see them: a copy of x with each client's noise, or x itself where there is none."""
    if not partition.noise.any():
        return x
    noisy = x.clone()
    for k, level in enumerate(partition.noise):
        rows = torch.from_numpy(np.concatenate([partition.train[k], partition.test[k]]))
        drawn = torch.randn(
            len(rows), *x.shape[1:], generator=generator(seed, "feature noise", k), dtype=x.dtype
        )
        noisy[rows] += float(level) * drawn
    return noisy


def _set_aside(part: Index, share: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """(train, test); whoever has two samples or more keeps at least one of each, if it tests at all."""
    count = min(max(round(len(part) * share), int(share > 0)), len(part) - 1)
    shuffled = rng.permutation(part)
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])
