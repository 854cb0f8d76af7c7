"""What the models of a data set are judged by: every metric of its task, and the one that decides.

The metric that decides is what tables, best rounds, patience and targets go by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import StudyError, suggest
from tacit.data.dataset import Dataset
from tacit.training.evaluation import Answers
from tacit.training.metrics import (
    METRICS,
    Figures,
    Metric,
    measure_classes,
    measure_numbers,
    metrics_of,
)

AUTO = "auto"
RARE = 0.5  # of its even share of the rows: a class with less makes accuracy misleading


@dataclass(frozen=True)
class Yardstick:
    """Measures answers.

    R2 = 1 - mean squared error / variance. The variance is that of the test set's outcomes, for
    local tests and training samples too, so that the figures of a study can be compared and
    averaged.
    """

    metric: Metric  # that decides
    classes: int = 0
    positive: int = 1  # the positive one of two classes
    variance: float = 1.0
    unit: float = 1.0  # what one unit of the scaled outcomes is, in the target's units

    @classmethod
    def of(cls, dataset: Dataset, metric: str = AUTO) -> Yardstick:
        deciding = choose_metric(dataset, metric)
        if dataset.classes:
            positive = dataset.positive_class
            return cls(deciding, dataset.classes, 1 if positive is None else positive)
        variance = dataset.test_y.double().var(correction=0).item()
        return cls(deciding, variance=variance, unit=dataset.target_spread)

    @property
    def name(self) -> str:
        """The name of the metric that decides."""
        return self.metric.name

    @property
    def basis(self) -> str:
        """What is known of training, where hits are all that is counted: accuracy or R2."""
        return "accuracy" if self.classes else "r2"

    @property
    def names(self) -> list[str]:
        """All metrics, that which decides first."""
        task = "classification" if self.classes else "regression"
        names = [metric.name for metric in metrics_of(task, self.classes)]
        return sorted(names, key=lambda name: name != self.name)

    def measure(
        self,
        answers: Answers,
        y: Tensor,
        group: Index | None = None,
        groups: int = 1,
        *,
        ranked: bool = True,
        own_variance: bool = False,
    ) -> Figures:
        """Every metric for each group of rows; `ranked` includes those that need a sort.

        With its `own_variance`, a group's R2 says how much of that is explained. A group with an
        answer that is no finite number has no figures.
        """
        predicted = answers.predicted.numpy()
        rows_are_finite = np.isfinite(predicted)
        if self.classes:
            figures = measure_classes(
                y.numpy(),
                answers.classes.numpy(),
                predicted,
                positive=self.positive,
                group=group,
                groups=groups,
                ranked=ranked,
            )
            rows_are_finite = rows_are_finite.all(1)
        else:
            figures = measure_numbers(
                y.double().numpy(),
                predicted.astype(np.float64),
                variance=None if own_variance else self.variance,
                unit=self.unit,
                group=group,
                groups=groups,
            )
        if not rows_are_finite.all():
            lost = np.unique(0 if group is None else group[~rows_are_finite])
            for values in figures.values():
                values[lost] = np.nan
        return figures

    def figures(self, figures: Figures, group: int = 0) -> dict[str, float | None]:
        """One group's figures, the one that decides first; None is unknown."""
        return {name: known(figures[name][group]) for name in self.names}

    def from_hits(self, hits: float) -> float:
        """Accuracy or R2, from the mean of the hits or of the squared errors."""
        return hits if self.classes else 1 - hits / self.variance

    @property
    def no_figures(self) -> dict[str, float | None]:
        """The figures of a model that has diverged."""
        return dict.fromkeys(self.names)


def choose_metric(dataset: Dataset, name: str = AUTO) -> Metric:
    """The metric of this name or, if it is `auto`, the one that suits the data.

    That is R2 for numbers, accuracy for classes, and the area under the ROC curve if a class is
    rare: then accuracy praises a model that never finds it.
    """
    if name == AUTO:
        return METRICS[_usual_metric(dataset)]
    known_metrics = metrics_of(dataset.task, dataset.classes)
    names = [metric.name for metric in known_metrics]
    if name not in names:
        raise StudyError(
            f"metric {name} does not suit {dataset.name}, which is {_describe(dataset)};"
            f" use one of {', '.join(names)}"
        )
    return METRICS[name]


def check_metric(name: str) -> None:
    """Refuses a name that no metric has."""
    if name != AUTO and name not in METRICS:
        raise StudyError(f"there is no metric {name!r}; {suggest(name, [AUTO, *METRICS])}")


def _usual_metric(dataset: Dataset) -> str:
    if not dataset.classes:
        return "r2"
    shares = np.bincount(dataset.y.numpy(), minlength=dataset.classes) / len(dataset.y)
    is_imbalanced = shares.min() < RARE / dataset.classes
    return "auc" if is_imbalanced else "accuracy"


def _describe(dataset: Dataset) -> str:
    if not dataset.classes:
        return "for regression"
    return f"for classification with {dataset.classes} classes"


def known(value: Any) -> float | None:
    """The number, or None where there is none."""
    return float(value) if math.isfinite(value) else None
