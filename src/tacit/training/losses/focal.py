"""Focal loss: samples that are already classified well count less."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.data.encoding import Task
from tacit.training.losses.class_weights import (
    ClassWeights,
    as_tensor,
    checked_weights,
    weights_by_class,
)
from tacit.training.losses.loss import Loss, Outcomes

TINY = 1e-12  # a power below 1 has no slope at 0


@dataclass(frozen=True)
class Focal(Loss, name="focal"):
    """Cross-entropy times (1 - p)^gamma: samples that are already classified well count less.

    Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection, 2017, equation 5. p is
    the probability that the model gives the sample's class; `weights`, the paper's alpha, are those
    of cross_entropy. The paper's gamma is 2; with 0 it is cross_entropy.
    """

    gamma: float = 2.0
    weights: ClassWeights = field(default=None, hash=False)
    task: ClassVar[Task | None] = "classification"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", checked_weights(self.name, self.weights))
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise StudyError(f"{self.name}.gamma: expected 0 or more, got {self.gamma:g}")

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        log_p = output.log_softmax(-1)  # (B, classes)
        doubt = -torch.expm1(log_p)  # 1 - p
        class_losses = -(doubt.clamp(min=TINY) ** self.gamma) * log_p
        weights = as_tensor(self.name, self.weights, output)
        if weights is not None:
            class_losses = class_losses * weights
        if y.dim() == output.dim():  # soft labels
            return (y * class_losses).sum(-1)
        return class_losses.gather(-1, y[..., None])[..., 0]

    def fitted(self, outcomes: Outcomes) -> Loss:
        self.check_task(outcomes)
        return replace(self, weights=weights_by_class(self.name, self.weights, outcomes))
