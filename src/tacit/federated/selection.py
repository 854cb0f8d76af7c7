"""Which clients take part in a round."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from tacit.core.errors import StudyError
from tacit.core.registry import Registered


@dataclass(frozen=True)
class Selection(Registered, family="selections", home="tacit.federated.selection"):
    """Base of the selections."""

    def check(self, population: int) -> None:
        """Raises StudyError where it cannot choose among so many clients."""

    def count(self, population: int) -> int:
        """The fewest clients that a round has."""
        return population

    @abstractmethod
    def choose(self, round: int, population: int, rng: np.random.Generator) -> list[int]:
        """The clients of this round, in ascending order; the first round is 0."""


@dataclass(frozen=True)
class All(Selection, name="all"):
    """Every client, every round."""

    def choose(self, round: int, population: int, rng: np.random.Generator) -> list[int]:
        return list(range(population))


@dataclass(frozen=True)
class Fraction(Selection, name="fraction"):
    """A new random share `c` of the clients each round, at least one: max(c N, 1) of N
    (McMahan et al., 2017)."""

    c: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.c <= 1:
            raise StudyError(f"fraction.c: expected a share above 0 and up to 1, got {self.c}")

    def count(self, population: int) -> int:
        return max(math.floor(self.c * population + 1e-9), 1)  # 0.29 * 100 is 28.999...

    def choose(self, round: int, population: int, rng: np.random.Generator) -> list[int]:
        chosen = rng.choice(population, self.count(population), replace=False)
        return sorted(chosen.tolist())


@dataclass(frozen=True)
class Listed(Selection, name="listed"):
    """The clients that `lists` names for each round, such as [[0, 1], [2]]; after the last list,
    the first comes again."""

    lists: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.lists or not all(self.lists):
            raise StudyError(
                "listed.lists: expected at least one client for every round, such as [[0, 1], [2]]"
            )

    def choose(self, round: int, population: int, rng: np.random.Generator) -> list[int]:
        chosen = self.lists[round % len(self.lists)]
        return sorted(set(chosen))

    def count(self, population: int) -> int:
        return min(len(set(chosen)) for chosen in self.lists)

    def check(self, population: int) -> None:
        for chosen in self.lists:
            for client in chosen:
                if not 0 <= client < population:
                    raise StudyError(
                        f"listed.lists: expected clients from 0 to {population - 1}, got {client}"
                    )
