"""Cross-entropy, with weights for classes and with smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.data.encoding import Task
from tacit.training.losses.class_weights import (
    ClassWeights,
    as_tensor,
    checked_weights,
    weights_by_class,
)
from tacit.training.losses.loss import Loss, Outcomes


@dataclass(frozen=True)
class CrossEntropy(Loss, name="cross_entropy"):
    """Cross-entropy, with weights for classes and with smoothed labels.

    `weights` is `balanced` (n / (classes x count), as scikit-learn has it, counted in all training
    rows), weights by label, `{dead: 10}`, in which labels that are not named weigh 1, or a list of
    weights in the order of the classes. A sample's loss is multiplied by the weight of its class,
    and averaged over the number of samples; the mean of torch's `cross_entropy` divides by the sum
    of their weights instead, which would make it depend on what else is in the batch. `smoothing`
    is the share of a label that is spread over all classes, as `label_smoothing` there.
    """

    weights: ClassWeights = field(default=None, hash=False)
    smoothing: float = 0.0
    task: ClassVar[Task | None] = "classification"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", checked_weights(self.name, self.weights))
        if not 0 <= self.smoothing < 1:
            raise StudyError(
                f"{self.name}.smoothing: expected a share from 0 to below 1, got {self.smoothing:g}"
            )

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(
            output,
            y,
            weight=as_tensor(self.name, self.weights, output),
            label_smoothing=self.smoothing,
            reduction="none",
        )

    def fitted(self, outcomes: Outcomes) -> Loss:
        self.check_task(outcomes)
        return replace(self, weights=weights_by_class(self.name, self.weights, outcomes))

    @property
    def is_usual(self) -> bool:
        return self.weights is None and self.smoothing == 0
