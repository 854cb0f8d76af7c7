"""Label skew by quantity. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos
(NIID-Bench), 2022, #C = k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.data.splits.split import Split


@dataclass(frozen=True)
class LabelsPerParty(Split, name="labels_per_party"):
    """Each client holds only a few labels: `labels: 2` of them each, or `[2, 3, 5]`, one count per
    client.

    Labels are dealt at random, those held by the fewest clients first, so that counts that add up
    to the number of classes give every label to one client. A label's samples are divided evenly
    among the clients that hold it. `deal: in_order` gives the first client the first labels, the
    next client the next labels, and so on; after the last label comes the first again.
    """

    labels: int | tuple[int, ...] = 2
    deal: Literal["random", "in_order"] = "random"

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        classes = np.unique(labels)
        held = self._deal(len(classes), clients, rng)
        sizes = np.zeros(clients, dtype=np.int64)
        shards: list[list[Index]] = [[] for _ in range(clients)]
        for column, label in enumerate(classes):
            # the first ones get the samples that are left over
            holders = _smallest_first(np.flatnonzero(held[:, column]), sizes, rng)
            samples = rng.permutation(np.flatnonzero(labels == label))
            shares = np.array_split(samples, len(holders))
            for client, share in zip(holders, shares, strict=True):
                shards[client].append(share)
                sizes[client] += len(share)
        return [np.concatenate(shard) for shard in shards]

    def _deal(self, classes: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which client holds which label. # (clients, classes)"""
        counts = self._counts(classes, clients)
        held = np.zeros((clients, classes), dtype=bool)
        holders = np.zeros(classes, dtype=np.int64)  # how many clients hold each label
        for client, count in enumerate(counts):
            order = np.arange(classes) if self.deal == "in_order" else rng.random(classes)
            chosen = np.lexsort((order, holders))[:count]
            held[client, chosen] = True
            holders[chosen] += 1
        return held

    def _counts(self, classes: int, clients: int) -> list[int]:
        """How many labels each client holds."""
        setting = "labels_per_party.labels"
        counts = [self.labels] * clients if isinstance(self.labels, int) else list(self.labels)
        if len(counts) != clients:
            wanted = f"one count for each of {clients} clients"
            raise DataError(f"{setting}: expected {wanted}, got {counts}")
        if min(counts) < 1 or max(counts) > classes:
            wanted = f"counts from 1 to {classes}, the classes"
            raise DataError(f"{setting}: expected {wanted}, got {counts}")
        if sum(counts) < classes:
            covered = f"{sum(counts)} of {classes} labels"
            raise DataError(f"{setting}: {counts} cover {covered}; deal out more")
        return counts


def _smallest_first(holders: Index, sizes: Index, rng: np.random.Generator) -> Index:
    """The clients by how many samples they have so far; those with equally many in random order."""
    ties = rng.random(len(holders))
    return holders[np.lexsort((ties, sizes[holders]))]
