"""A loss of one's own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.core.errors import StudyError, shown
from tacit.models.own import recall
from tacit.training.losses.loss import CheckedLoss, Loss, LossFunction, Outcomes


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
        _check_signature(function, self.path)
        return CheckedLoss(_without_side_effects(function), self.path)


def _check_signature(function: Any, path: str) -> None:
    """Refuses a function that cannot be called with (output, y)."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise StudyError(f"{path}: a loss is called with (output, y), and {error}") from None
    except ValueError:  # a builtin that does not say what it takes
        return


def _without_side_effects(function: LossFunction) -> LossFunction:
    """The function on a copy of y: the targets belong to all runs of the study."""

    def on_a_copy(output: Tensor, y: Tensor) -> Tensor:
        return function(output, y.clone())

    return on_a_copy
