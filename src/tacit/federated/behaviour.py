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
            if not 0 <= getattr(self, name, 0) <= 1:
                raise StudyError(
                    f"{self.name}.{name}: expected a share from 0 to 1, got {getattr(self, name)}"
                )

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
    """Each client is slow with probability `share`, for good: it gets `work` of its steps done, at least one."""

    share: float = 0.5
    work: float = 0.2

    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        slow = numpy_generator(seed, "straggler", client).random() < self.share
        return min(planned, max(1, math.floor(self.work * planned + 1e-9))) if slow else planned


@dataclass(frozen=True)
class Variable(Behaviour, name="variable"):
    """FedProx's: each round, each client is slow with probability `share` and takes a random number of its steps.

    The number is uniform from one to all. `drop` leaves the slow ones out instead, as FedAvg does in that paper, which
    draws epochs where we draw steps (Li et al., 2020, section 5.2).
    """

    share: float = 0.9
    drop: bool = False

    def steps(self, planned: int, seed: int, client: int, round: int) -> int:
        rng = numpy_generator(seed, "variable work", client, round)
        if rng.random() >= self.share:
            return planned
        return 0 if self.drop else int(rng.integers(1, planned, endpoint=True)) if planned else 0
