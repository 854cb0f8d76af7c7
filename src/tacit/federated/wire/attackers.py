"""Clients that lie: what they send in place of their updates, or how they change their data.

`attackers: {count: 4, kind: sign_flip}` makes four clients of a study lie; the seed says which.
They work as everyone does. Then `lie` replaces what they send, knowing what the others send; or
`poison` has changed their data before they train.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.seeds import numpy_generator


@dataclass(frozen=True)
class Attackers(Registered, family="attackers", home="tacit.federated.wire.attackers", key="kind"):
    """Base of the kinds of attack. `count` clients attack."""

    count: int = 1
    poisons: ClassVar[bool] = False  # the training data, so that its own update is already the lie
    needs_classes: ClassVar[bool] = False
    sees_others: ClassVar[bool] = False  # what the honest send
    measures: ClassVar[str | None] = None  # its success is measured, under this name

    def __post_init__(self) -> None:
        if self.count < 1:
            raise StudyError(
                f"{self.name}.count: expected 1 or more, got {self.count};"
                " for no attack, use attackers: none"
            )

    def check(self, population: int, classes: int | None = None) -> None:
        """Raises StudyError where nobody would be honest, or where there are no classes to change.

        A regression has 0 classes; None says that their number is not known yet.
        """
        if self.needs_classes and classes == 0:
            raise StudyError(
                f"{self.name} changes classes, and these data have numbers to predict;"
                " use another attack"
            )
        if self.count >= population:
            raise StudyError(
                f"attackers: {self.count} of {population} clients leave no honest one; use fewer"
            )

    def who(self, population: int, seed: int) -> tuple[int, ...]:
        """The clients that attack."""
        rng = numpy_generator(seed, "attackers")
        chosen = rng.choice(population, self.count, replace=False)
        return tuple(sorted(chosen.tolist()))

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        """What the attackers send: from their own updates (L, P) and those of the honest (H, P)."""
        return mine

    def poison(
        self, x: Tensor, y: Tensor, classes: int, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """An attacker's training data, changed."""
        return x, y

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The test samples that show whether the attack succeeds, and the answers it wants."""
        return x, y


@dataclass(frozen=True)
class Nobody(Attackers, name="none"):
    """No attack: all clients are honest."""

    count: int = 0

    def __post_init__(self) -> None:
        if self.count:
            raise StudyError(
                f"attackers: none has no attackers, got count {self.count}; name a kind of attack,"
                f" such as {{kind: sign_flip, count: {self.count}}}"
            )


@dataclass(frozen=True)
class SignFlip(Attackers, name="sign_flip"):
    """Sends the opposite of its update, `scale` times as large."""

    scale: float = 1.0

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        return -self.scale * mine


@dataclass(frozen=True)
class Gaussian(Attackers, name="gaussian"):
    """Sends noise of standard deviation `sigma` instead of its update
    (Blanchard et al., 2017, section 5)."""

    sigma: float = 1.0

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        noise = torch.randn(mine.shape, generator=rng, dtype=mine.dtype)
        return self.sigma * noise.to(mine)


@dataclass(frozen=True)
class Scale(Attackers, name="scale"):
    """Sends its update, `factor` times as large."""

    factor: float = 10.0

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        return self.factor * mine


@dataclass(frozen=True)
class Alie(Attackers, name="alie"):
    """A little is enough: sends the honest mean minus z deviations, within the honest spread
    (Baruch, Baruch, Goldberg, 2019).

    By default, z is the largest with which enough honest clients are further from the mean.
    """

    z: float | None = None
    sees_others: ClassVar[bool] = True

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        updates = others if len(others) else mine
        z = largest_z(len(mine), len(others)) if self.z is None else self.z
        deviation = updates.std(0, correction=0)
        return (updates.mean(0) - z * deviation).expand_as(mine)


def largest_z(liars: int, honest: int) -> float:
    """How many deviations out a lie may lie, so that it wins a majority."""
    majority = math.floor((liars + honest) / 2 + 1)
    needed = majority - liars  # honest clients that must lie further out
    share = (honest - needed) / max(honest, 1)
    return NormalDist().inv_cdf(min(max(share, 0.5), 0.999))


@dataclass(frozen=True)
class Ipm(Attackers, name="ipm"):
    """Inner product manipulation: sends -epsilon times the honest mean, to reverse the average
    (Xie et al., 2020)."""

    epsilon: float = 0.5
    sees_others: ClassVar[bool] = True

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        updates = others if len(others) else mine
        return (-self.epsilon * updates.mean(0)).expand_as(mine)


@dataclass(frozen=True)
class LabelFlip(Attackers, name="label_flip"):
    """Trains with every label c changed to classes - 1 - c."""

    poisons: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def poison(
        self, x: Tensor, y: Tensor, classes: int, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return x, classes - 1 - y


@dataclass(frozen=True)
class Backdoor(Attackers, name="backdoor"):
    """Teaches the model to answer `target` where it sees a trigger: a square of `size` x `size`
    pixels, or the last `size` columns.

    The trigger sets them to `value`. A `share` of the attacker's samples gets the trigger and the
    label, and its update is sent `boost` times as large (Bagdasaryan et al., 2020). Success is the
    share of triggered test samples of other classes that are taken for the target.
    """

    target: int = 0
    share: float = 0.5
    size: int = 3
    value: float = 1.0
    boost: float = 1.0
    poisons: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True
    measures: ClassVar[str | None] = "backdoor"

    def check(self, population: int, classes: int | None = None) -> None:
        super().check(population, classes)
        if self.target < 0 or (classes is not None and self.target >= classes):
            last = (classes or 1) - 1
            raise StudyError(
                f"backdoor.target: expected a class from 0 to {last}, got {self.target}"
            )
        if not 0 < self.share <= 1 or self.size < 1:
            raise StudyError(
                "backdoor: expected a share up to 1 and a size of 1 or more,"
                f" got {self.share}, {self.size}"
            )

    def lie(self, mine: Tensor, others: Tensor, rng: torch.Generator) -> Tensor:
        return self.boost * mine

    def poison(
        self, x: Tensor, y: Tensor, classes: int, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        count = math.ceil(self.share * len(x))
        chosen = torch.randperm(len(x), generator=rng)[:count]
        poisoned_x = x.clone()
        poisoned_x[chosen] = self.trigger(x[chosen])
        poisoned_y = y.clone()
        poisoned_y[chosen] = self.target
        return poisoned_x, poisoned_y

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        probes = x[y != self.target]
        wanted = torch.full((len(probes),), self.target, device=probes.device)
        return self.trigger(probes), wanted

    def trigger(self, x: Tensor) -> Tensor:
        """The samples with the trigger on them. # (n, ...) -> (n, ...)"""
        marked = x.clone()
        last = slice(-self.size, None)
        if x.dim() > 2:  # images
            marked[..., last, last] = self.value
        else:
            marked[..., last] = self.value
        return marked
