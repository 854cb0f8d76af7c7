"""The base of the row splits: pure maps from labels or owners to each client's sample indices.

>>> Split.build("iid")(np.zeros(6, int), 2, np.random.default_rng(0))
[array([2, 3, 5]), array([0, 1, 4])]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.core.registry import Registered

Dealt = tuple[Index, Index]  # samples, and the client that each goes to
DRAWS = 1000  # how often at most a split is drawn again while a client has too few samples
DEALT = 1_000_000  # shares in all these draws: with very many clients there are fewer draws
FEWEST_DRAWS = 10


@dataclass(frozen=True)
class Split(Registered, family="splits", home="tacit.data.splits"):
    """Called as `split(labels, clients, rng)`; returns one ascending index array per client.

    None of them is empty. A split that divides by owners gets these in place of the labels.
    """

    by: ClassVar[Literal["labels", "owners"]] = "labels"
    overlapping: ClassVar[bool] = False  # True where the shards are no partition
    alike: ClassVar[bool] = False  # clients have equally many samples of one distribution
    uneven_sizes: ClassVar[bool] = False  # clients are meant to differ in size; some are very small

    def __call__(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        if clients < 1:
            raise DataError(f"clients: expected 1 or more, got {clients}")
        if clients > len(labels):
            count = len(labels)
            raise DataError(
                f"{clients} clients cannot share {count} samples; use at most {count} clients"
            )
        shards: list[Index] = []
        for client, samples in enumerate(self.assign(labels, clients, rng)):
            if not len(samples):
                raise DataError(
                    f"{self.name} leaves client {client} without a sample;"
                    " use fewer clients or another seed"
                )
            shards.append(np.sort(np.asarray(samples, dtype=np.int64)))
        return shards

    @abstractmethod
    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        """Each client's samples, in any order."""

    def noise(self, clients: int) -> NDArray[np.float64]:
        """The standard deviation of the noise that each client's features get."""
        return np.zeros(clients)


def draw_until(enough: int, draw: Callable[[], Dealt], clients: int, name: str) -> list[Index]:
    """Draws again while some client has fewer than `enough` samples, and gives up with a reason."""
    draws = max(FEWEST_DRAWS, min(DRAWS, DEALT // clients))
    smallest = 0
    for _ in range(draws):
        samples, owner = draw()
        sizes = np.bincount(owner, minlength=clients)
        if sizes.min() >= enough:
            return by_owner(samples, owner, clients)
        smallest = max(smallest, int(sizes.min()))
    raise DataError(
        f"{name}: in {draws} draws some client always had fewer than {enough} samples"
        f" (at best {smallest}); use a larger beta, fewer clients or a smaller min_samples"
    )


def deal(samples: Index, shares: NDArray[np.float64]) -> Dealt:
    """Gives every sample to a client.

    The first samples go to the first client, and so on, in proportion to `shares`, which sum to
    one.
    """
    exact_ends = np.cumsum(shares)[:-1] * len(samples)
    rounded_ends = np.floor(exact_ends + 1e-9).astype(int)
    ends = np.minimum(rounded_ends, len(samples))
    sizes = np.diff(ends, prepend=0, append=len(samples))
    return samples, np.repeat(np.arange(len(shares)), sizes)


def by_owner(samples: Index, owner: Index, clients: int) -> list[Index]:
    """Each client's samples, in the order in which they came: one pass, however many clients."""
    sizes = np.bincount(owner, minlength=clients)
    ends = np.cumsum(sizes)[:-1]
    in_order = np.argsort(owner, kind="stable")
    return np.split(samples[in_order], ends)
