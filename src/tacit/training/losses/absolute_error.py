"""The absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.data.encoding import Task
from tacit.training.losses.loss import Loss


@dataclass(frozen=True)
class AbsoluteError(Loss, name="absolute_error"):
    """The absolute error of standardised numbers: the model learns the median."""

    task: ClassVar[Task | None] = "regression"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return (output[..., 0] - y).abs()
