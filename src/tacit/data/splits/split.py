"""The base of the row splits: pure maps from labels, or from owners, to each client's sample indices.

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

from tacit.core.errors import DataError
from tacit.core.registry import Registered

Index = NDArray[np.int64]
Dealt = tuple[Index, Index]  # samples, and whose each is
DRAWS = (
    1000  # random splits are drawn again, this often at most, while a client has too few samples
)
DEALT = 1_000_000  # shares in all these draws: of very many clients there are fewer draws
FEWEST_DRAWS = 10


@dataclass(frozen=True)
class Split(Registered, family="splits", home="tacit.data.splits"):
    """Called as `split(labels, clients, rng)`; returns one ascending index array per client, none of them empty.

    A split that divides by owners is given these in place of the labels.
    """

    by: ClassVar[Literal["labels", "owners"]] = "labels"
    overlapping: ClassVar[bool] = False  # True where the shards are no partition
    alike: ClassVar[bool] = (
        False  # clients have as many samples as each other, from the same distribution
    )
    uneven_sizes: ClassVar[bool] = (
        False  # clients are meant to differ in size, some being very small
    )

    def __call__(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        if clients < 1:
            raise DataError(f"clients: expected 1 or more, got {clients}")
        if clients > len(labels):
            raise DataError(
                f"{clients} clients cannot share {len(labels)} samples; use at most {len(labels)} clients"
            )
        parts = [
            np.sort(np.asarray(part, dtype=np.int64)) for part in self.assign(labels, clients, rng)
        ]
        if empty := [k for k, part in enumerate(parts) if not len(part)]:
            raise DataError(
                f"{self.name} leaves client {empty[0]} without a sample; use fewer clients or another seed"
            )
        return parts

    @abstractmethod
    def assign(
        self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> list[Index]:
        """Each client's samples, in any order."""

    def noise(self, clients: int) -> NDArray[np.float64]:
        """The standard deviation of the noise that each client's features get."""
        return np.zeros(clients)


def draw_until(enough: int, draw: Callable[[], Dealt], clients: int, what: str) -> list[Index]:
    """Draws again while some client has fewer than `enough` samples, and gives up with a reason."""
    smallest, draws = 0, max(FEWEST_DRAWS, min(DRAWS, DEALT // clients))
    for _ in range(draws):
        samples, owner = draw()
        sizes = np.bincount(owner, minlength=clients)
        if sizes.min() >= enough:
            return by_owner(samples, owner, clients)
        smallest = max(smallest, int(sizes.min()))
    raise DataError(
        f"{what}: in {draws} draws some client always had fewer than {enough} samples (at best {smallest});"
        " use a larger beta, fewer clients or a smaller min_samples"
    )


def deal(samples: Index, shares: NDArray[np.float64]) -> Dealt:
    """Consecutive parts of the samples in proportion to `shares`, which sum to one; every sample lands somewhere."""
    ends = np.minimum(
        np.floor(np.cumsum(shares)[:-1] * len(samples) + 1e-9).astype(int), len(samples)
    )
    return samples, np.repeat(np.arange(len(shares)), np.diff(ends, prepend=0, append=len(samples)))


def by_owner(samples: Index, owner: Index, clients: int) -> list[Index]:
    """Each client's samples, in the order in which they came: one pass, however many clients."""
    ends = np.cumsum(np.bincount(owner, minlength=clients))[:-1]
    return np.split(samples[np.argsort(owner, kind="stable")], ends)
