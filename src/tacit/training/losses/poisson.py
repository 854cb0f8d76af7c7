"""The loss of counts: visits, events, days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.data.encoding import Task
from tacit.training.losses.loss import Loss, Outcomes

HIGHEST = 34.0  # of a predicted rate's logarithm: the square of the rate is still a float
ROUNDING = 1e-5  # of a standardised float that stands for 0


@dataclass(frozen=True)
class PoissonLoss(Loss, name="poisson"):
    """For counts of 0 or more: the model's output is the logarithm of the rate, in the target's own
    units.

    The loss is rate - count x log(rate), torch's `poisson_nll_loss`. Predictions and scores are
    those of the rate. Counts are not standardised, so where they are large, use adam or a small
    learning rate.
    """

    task: ClassVar[Task | None] = "regression"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return functional.poisson_nll_loss(output[..., 0], y, log_input=True, reduction="none")

    def predicted(self, output: Tensor) -> Tensor:
        return output[..., 0].clamp(max=HIGHEST).exp()

    def fitted(self, outcomes: Outcomes) -> Loss:
        self.check_task(outcomes)
        tolerance = ROUNDING * max(abs(outcomes.centre), outcomes.spread)
        if outcomes.least < -tolerance:
            raise StudyError(
                f"{self.name} is a loss for counts of 0 or more, and the smallest number to predict"
                f" is {outcomes.least:.4g}; use squared_error or huber"
            )
        return StandardisedPoisson(outcomes.centre, outcomes.spread)


@dataclass(frozen=True)
class StandardisedPoisson(Loss):
    """The same, for counts that were standardised."""

    centre: float
    spread: float

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        counts = (y * self.spread + self.centre).clamp(min=0)
        return PoissonLoss()(output, counts)

    def predicted(self, output: Tensor) -> Tensor:
        return (PoissonLoss().predicted(output) - self.centre) / self.spread
