"""Huber's loss: outliers count less than by the squared error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.data.encoding import Task
from tacit.training.losses.loss import Loss, Outcomes


@dataclass(frozen=True)
class Huber(Loss, name="huber"):
    """Half the squared error up to `delta`, and straight lines beyond it, so that outliers count
    less.

    Huber: Robust Estimation of a Location Parameter, 1964. `delta` is in the target's own units,
    such as days; null is one standard deviation of the training rows. The numbers are standardised,
    as for squared_error: the loss is torch's `huber_loss` with delta divided by that deviation.
    """

    delta: float | None = None
    task: ClassVar[Task | None] = "regression"

    def __post_init__(self) -> None:
        if self.delta is not None and not (math.isfinite(self.delta) and self.delta > 0):
            raise StudyError(f"{self.name}.delta: expected a number above 0, got {self.delta:g}")

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        delta = 1.0 if self.delta is None else self.delta
        return functional.huber_loss(output[..., 0], y, delta=delta, reduction="none")

    def fitted(self, outcomes: Outcomes) -> Loss:
        """The loss of standardised numbers."""
        self.check_task(outcomes)
        return self if self.delta is None else replace(self, delta=self.delta / outcomes.spread)
