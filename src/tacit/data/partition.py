"""Divides a data set among clients.

The server's sample comes first, then the split, then each client's local test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.core.seeds import generator, numpy_generator
from tacit.data.shards import Shards
from tacit.data.splits.split import Split


@dataclass(frozen=True)
class Partition:
    """Who holds which samples of the training set."""

    train: Shards[Index]
    test: Shards[Index]  # each client's local test
    server: Index  # set aside before the split
    noise: NDArray[np.float64]  # standard deviation per client
    names: tuple[str, ...] = ()  # of the clients: as in the data, or their numbers


def divide(
    labels: NDArray[np.int64],
    split: Split,
    clients: int,
    seed: int,
    *,
    owner: NDArray[np.int64] | None = None,
    owners: tuple[str, ...] = (),
    column: str | None = None,
    person: NDArray[np.int64] | None = None,
    server_samples: int = 0,
    local_test: float = 0.1,
) -> Partition:
    """Applies a split. Each client keeps a share `local_test` of its samples to test on.

    `owner` has each sample's owner as a number, for a split that divides by owners; `owners` are
    their names, from this `column` of the data. `person` is whom each sample is of; a client tests
    on all samples of a person or on none.
    """
    keys = labels
    names = tuple(str(client) for client in range(clients))
    if split.by == "owners":
        keys = _require_owner(owner, split)
        _check_owner_count(owners, column, clients)
        names = owners
    if not 0 <= server_samples < len(labels):
        wanted = f"less than the {len(labels)} samples there are"
        raise DataError(f"server_samples: expected {wanted}, got {server_samples}")
    order = numpy_generator(seed, "server sample").permutation(len(labels))
    server = np.sort(order[:server_samples])
    rest = np.sort(order[server_samples:])
    positions = split(keys[rest], clients, numpy_generator(seed, "split"))
    shards = [rest[position] for position in positions]
    train, test = _set_tests_aside(shards, local_test, seed, person)
    return Partition(train, test, server, split.noise(clients), names)


def _require_owner(owner: NDArray[np.int64] | None, split: Split) -> NDArray[np.int64]:
    if owner is None:
        raise DataError(
            f"{split.name} needs data that name each row's client; name the column that does, such"
            " as dataset: {name: table, ..., client: hospital}"
        )
    return owner


def _check_owner_count(owners: tuple[str, ...], column: str | None, clients: int) -> None:
    """Refuses data that name another number of clients than the study has."""
    if len(owners) != clients:
        where = f"the column {column} names" if column else "the data name"
        raise DataError(f"{where} {len(owners)} clients; set clients: {len(owners)}")


def add_noise(x: Tensor, partition: Partition, seed: int) -> Tensor:
    """The features as the clients see them.

    A copy of x with each client's noise or, if no client has any, x itself.
    """
    if not partition.noise.any():
        return x
    noisy = x.clone()
    for client, level in enumerate(partition.noise):
        samples = np.concatenate([partition.train[client], partition.test[client]])
        rows = torch.from_numpy(samples)
        rng = generator(seed, "feature noise", client)
        draws = torch.randn(len(rows), *x.shape[1:], generator=rng, dtype=x.dtype)
        noisy[rows] += float(level) * draws
    return noisy


def _set_tests_aside(
    shards: list[Index], share: float, seed: int, person: NDArray[np.int64] | None
) -> tuple[Shards[Index], Shards[Index]]:
    """(train, test) of all clients."""
    train: list[Index] = []
    test: list[Index] = []
    for client, shard in enumerate(shards):
        rng = numpy_generator(seed, "local test", client)
        if person is None:
            client_train, client_test = _set_aside(shard, share, rng)
        else:
            client_train, client_test = _set_people_aside(shard, share, rng, person)
        train.append(client_train)
        test.append(client_test)
    return Shards.of(train), Shards.of(test)


def _set_people_aside(
    shard: Index, share: float, rng: np.random.Generator, person: NDArray[np.int64]
) -> tuple[Index, Index]:
    """(train, test) of one client, with nobody in both; the test may be a little larger.

    A client all of whose samples are of one person keeps them to train on.
    """
    if not len(shard) or share == 0:
        return shard, shard[:0]
    people, of_sample, counts = np.unique(person[shard], return_inverse=True, return_counts=True)
    order = rng.permutation(len(people))
    so_far = np.cumsum(counts[order])
    tested = int(np.searchsorted(so_far, max(1, round(len(shard) * share)))) + 1
    tested = min(tested, len(people) - 1)
    is_test = np.isin(of_sample, order[:tested])
    return shard[~is_test], shard[is_test]


def _set_aside(shard: Index, share: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """(train, test) of one client.

    A client with two samples or more keeps at least one of each, unless the share is 0.
    """
    fewest = 1 if share > 0 else 0
    count = max(round(len(shard) * share), fewest)
    count = min(count, len(shard) - 1)
    shuffled = rng.permutation(shard)
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])
