"""How the local learning rate changes from round to round.

Within a round it is constant, as the papers assume.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tacit.core.errors import StudyError
from tacit.core.registry import Registered


@dataclass(frozen=True)
class Schedule(Registered, family="schedules", home="tacit.training.schedules"):
    """Base of the schedules."""

    @abstractmethod
    def factor_at(self, round: int) -> float:
        """What multiplies the learning rate in this round; the first is 0."""


@dataclass(frozen=True)
class Constant(Schedule, name="constant"):
    """The learning rate stays as it is."""

    def factor_at(self, round: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepDecay(Schedule, name="step"):
    """Multiplies the learning rate by `factor` after every `every` rounds, as torch's StepLR does
    per epoch.

    >>> [StepDecay(factor=0.5, every=2).factor_at(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    factor: float = 0.1
    every: int = 10

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.factor <= 1:
            raise StudyError(
                "step: expected every >= 1 and 0 < factor <= 1, "
                f"got every={self.every}, factor={self.factor}"
            )

    def factor_at(self, round: int) -> float:
        return self.factor ** (round // self.every)
