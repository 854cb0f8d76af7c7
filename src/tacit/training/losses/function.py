"""A loss of one's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.core.errors import StudyError, shown
from tacit.models.own import recall
from tacit.training.losses.loss import CheckedLoss, Loss, Outcomes


@dataclass(frozen=True)
class FunctionLoss(Loss, name="function"):
    """Your own Python function, by import path: called with (output, y), it returns the loss of
    each sample.

    `output` is what the model gives, (samples, classes) or (samples, 1), and `y` the labels from 0
    or the standardised numbers. It is averaged over the samples.
    """

    path: str

    @property
    def calls(self) -> str | None:
        return self.path

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return self._checked()(output, y)

    def fitted(self, outcomes: Outcomes) -> Loss:
        return self._checked()

    def _checked(self) -> Loss:
        function = recall(self.path)
        if isinstance(function, type) or not callable(function):
            raise StudyError(
                f"{self.path}: expected a function of (output, y), got {shown(function)}"
            )
        return CheckedLoss(function, self.path)
