"""Label skew by quantity. Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (NIID-Bench), 2022, #C = k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.splits.split import Index, Split


@dataclass(frozen=True)
class LabelsPerParty(Split, name="labels_per_party"):
    """Each client holds only a few labels: `labels: 2` of them each, or `[2, 3, 5]`, one count per client.

    Labels are dealt at random, those held by the fewest clients first, so that counts that add up to the number of
    classes give every label to one client. A label's samples are divided evenly among the clients that hold it.
    `deal: in_order` gives the first client the first labels, the next one the next, and so on round the classes.
    """

    labels: int | tuple[int, ...] = 2
    deal: Literal["random", "in_order"] = "random"

    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        classes = np.unique(labels)
        held = self._deal(len(classes), clients, rng)  # (clients, classes), boolean
        parts: list[list[Index]] = [[] for _ in range(clients)]
        for column, label in enumerate(classes):
            holders = np.flatnonzero(held[:, column])
            sizes = np.array([sum(map(len, parts[client])) for client in holders])
            holders = holders[
                np.lexsort((rng.random(len(holders)), sizes))
            ]  # what is left over goes to the smallest
            samples = rng.permutation(np.flatnonzero(labels == label))
            for client, share in zip(holders, np.array_split(samples, len(holders)), strict=True):
                parts[client].append(share)
        return [np.concatenate(part) for part in parts]

    def _deal(self, classes: int, clients: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        counts = [self.labels] * clients if isinstance(self.labels, int) else list(self.labels)
        if len(counts) != clients:
            raise DataError(
                f"labels_per_party.labels: expected one count for each of {clients} clients, got {counts}"
            )
        if min(counts) < 1 or max(counts) > classes:
            raise DataError(
                f"labels_per_party.labels: expected counts from 1 to {classes}, the classes, got {counts}"
            )
        if sum(counts) < classes:
            raise DataError(
                f"labels_per_party.labels: {counts} cover {sum(counts)} of {classes} labels; deal out more"
            )
        held, holders = np.zeros((clients, classes), dtype=bool), np.zeros(classes, dtype=np.int64)
        for client, count in enumerate(counts):
            order = np.arange(classes) if self.deal == "in_order" else rng.random(classes)
            chosen = np.lexsort((order, holders))[:count]
            held[client, chosen] = True
            holders[chosen] += 1
        return held
