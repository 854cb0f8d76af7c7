"""The squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.data.encoding import Task
from tacit.training.losses.loss import Loss, losses


@dataclass(frozen=True)
class SquaredError(Loss, name="squared_error"):
    """The squared error of standardised numbers."""

    task: ClassVar[Task | None] = "regression"

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return losses(output, y)

    @property
    def is_usual(self) -> bool:
        return True
