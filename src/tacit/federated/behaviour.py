"""How much of its local work a client gets done in a round."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.seeds import numpy_generator


@dataclass(frozen=True)
class Behaviour(Registered, family="behaviours", home="tacit.federated.behaviour"):
    """Base of the behaviours."""

    def __post_init__(self) -> None:
        for name in ("share", "work"):
            value = getattr(self, name, 0)
            if not 0 <= value <= 1:
                raise StudyError(f"{self.name}.{name}: expected a share from 0 to 1, got {value}")

    @abstractmethod
    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        """How many of the planned steps are taken; with none, there is no reply."""


@dataclass(frozen=True)
class Steady(Behaviour, name="steady"):
    """Every client does all of its work."""

    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        return planned


@dataclass(frozen=True)
class Stragglers(Behaviour, name="stragglers"):
    """The same clients are slow in every round, each with probability `share`: they do only a share
    `work` of their steps, at least one."""

    share: float = 0.5
    work: float = 0.2

    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        slow = numpy_generator(seed, "straggler", client).random() < self.share
        if not slow:
            return planned
        finished = math.floor(self.work * planned + 1e-9)  # 0.29 * 100 is 28.999...
        return min(planned, max(1, finished))


@dataclass(frozen=True)
class Variable(Behaviour, name="variable"):
    """In each round, each client is slow with probability `share` and takes a random number
    of its steps.

    The number is uniform from one to all. `drop` leaves the slow ones out instead, as with
    FedAvg in FedProx's experiments. There epochs are drawn, here steps (Li et al., 2020, section
    5.2).
    """

    share: float = 0.9
    drop: bool = False

    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        rng = numpy_generator(seed, "variable work", client, round)
        slow = rng.random() < self.share
        if not slow:
            return planned
        if self.drop or not planned:
            return 0
        return int(rng.integers(1, planned, endpoint=True))
