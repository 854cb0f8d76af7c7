"""The metrics that models are judged by, for many groups of rows in one pass.

A group is whatever somebody wants to know of: the test set, a client's rows, the women. A metric
that a group of rows has no answer to, such as an area under a curve without positives, is NaN.

>>> y = np.array([0, 0, 1, 1])
>>> probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
>>> figures = measure_classes(y, probabilities.argmax(1), probabilities)
>>> {name: float(values[0].round(3)) for name, values in figures.items()}["sensitivity"]
0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.core.arrays import Floats, Index
from tacit.training.ranking import Ranking

Figures = dict[str, Floats]  # metric -> its value for each group
KEYS = 200_000  # that are sorted at a time, since a cache holds them


@dataclass(frozen=True)
class Metric:
    """What a metric says, and how the figures of several sites become one without their rows."""

    name: str
    title: str  # as people write it
    task: Literal["classification", "regression"]
    about: str
    merges: str
    lowest_is_best: bool = False
    is_ranking: bool = False  # it needs the rows sorted by their scores
    in_units: bool = False  # of the target, so that it has no natural bounds
    two_classes: bool = False  # it needs a positive class

    def merit(self, figure: float) -> float:
        """The figure as a number of which more is better."""
        return -figure if self.lowest_is_best else figure


SUMS = "exactly, from sums"
HISTOGRAM = "from a histogram of scores, with the error that it leaves"
METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "auc",
            "ROC AUC",
            "classification",
            "how often a positive has a higher score than a negative; the mean over classes",
            HISTOGRAM,
            is_ranking=True,
        ),
        Metric(
            "average_precision",
            "average precision",
            "classification",
            "the mean precision over all positives found; a model that guesses has their share",
            HISTOGRAM,
            is_ranking=True,
        ),
        Metric("accuracy", "accuracy", "classification", "the share of rows that are right", SUMS),
        Metric(
            "balanced_accuracy",
            "balanced accuracy",
            "classification",
            "the mean share of each class's rows that are right",
            SUMS,
        ),
        Metric(
            "f1",
            "F1",
            "classification",
            "the harmonic mean of precision and sensitivity; the mean over classes",
            SUMS,
        ),
        Metric(
            "sensitivity",
            "sensitivity",
            "classification",
            "the share of the positives that are found, also called recall",
            SUMS,
            two_classes=True,
        ),
        Metric(
            "specificity",
            "specificity",
            "classification",
            "the share of the negatives that are left alone",
            SUMS,
            two_classes=True,
        ),
        Metric(
            "precision",
            "precision",
            "classification",
            "the share of those taken for positives that are, also called PPV",
            SUMS,
            two_classes=True,
        ),
        Metric(
            "brier",
            "Brier score",
            "classification",
            "the mean squared error of the probabilities",
            SUMS,
            lowest_is_best=True,
        ),
        Metric(
            "r2",
            "R²",
            "regression",
            "1 minus the mean squared error divided by the test set's variance",
            SUMS,
        ),
        Metric(
            "rmse",
            "RMSE",
            "regression",
            "the root mean squared error, in the target's own units",
            SUMS,
            lowest_is_best=True,
            in_units=True,
        ),
        Metric(
            "mae",
            "MAE",
            "regression",
            "the mean absolute error, in the target's own units",
            SUMS,
            lowest_is_best=True,
            in_units=True,
        ),
    )
}


def metrics_of(task: str, classes: int) -> list[Metric]:
    """The metrics of a task with so many classes."""
    metrics = [metric for metric in METRICS.values() if metric.task == task]
    return [metric for metric in metrics if classes == 2 or not metric.two_classes]


def measure_classes(
    y: Index,
    predicted: Index,
    probabilities: Floats,
    *,
    positive: int = 1,
    group: Index | None = None,
    groups: int = 1,
    ranked: bool = True,
) -> Figures:
    """Every metric of classes, as scikit-learn defines it, for each group of rows.

    `predicted` are classes and `probabilities` (n, classes). With two classes, `positive` is the
    one that F1, sensitivity, specificity and average precision are about; with more, F1 and the
    ranking metrics are means over the classes for which they are known. `ranked` asks for the
    latter, which need the rows sorted.
    """
    classes = probabilities.shape[1]
    counts = ClassCounts.of(y, predicted, classes, group, groups)
    figures = counts.metrics(positive if classes == 2 else None)
    squared = _group_sums(brier_errors(y, probabilities), group, groups)
    with np.errstate(invalid="ignore"):
        figures["brier"] = squared / counts.rows
    if ranked:
        ranked_classes = [positive] if classes == 2 else list(range(classes))
        figures |= _measure_ranking(y, probabilities, ranked_classes, group, groups)
    return {name: figures[name] for name in METRICS if name in figures}


@dataclass(frozen=True)
class ClassCounts:
    """How many rows of each class there are, were predicted, and were predicted rightly.

    # (groups, classes)
    """

    actual: Index
    predicted: Index
    right: Index

    @classmethod
    def of(
        cls,
        y: Index,
        predicted: Index,
        classes: int,
        group: Index | None = None,
        groups: int = 1,
    ) -> ClassCounts:
        offset = 0 if group is None else group * classes
        size = groups * classes
        actual = np.bincount(y + offset, minlength=size)
        chosen = np.bincount(predicted + offset, minlength=size)
        is_right = y == predicted
        right = np.bincount((y + offset)[is_right], minlength=size)
        shape = (groups, classes)
        return cls(actual.reshape(shape), chosen.reshape(shape), right.reshape(shape))

    @property
    def rows(self) -> Index:
        """# (groups,)"""
        rows: Index = self.actual.sum(1)
        return rows

    def metrics(self, positive: int | None) -> Figures:
        """What follows from the counts; `positive` is the positive one of two classes."""
        with np.errstate(invalid="ignore", divide="ignore"):
            recall = self.right / self.actual
            f1 = 2 * self.right / (self.actual + self.predicted)
            figures = {
                "accuracy": self.right.sum(1) / self.rows,
                "balanced_accuracy": _mean_of_known(recall),
            }
        if positive is None:
            figures["f1"] = _mean_of_known(f1)
            return figures
        rows = self.rows > 0
        figures["f1"] = np.where(rows, np.nan_to_num(f1[:, positive]), np.nan)
        figures["sensitivity"] = recall[:, positive]
        figures["specificity"] = recall[:, 1 - positive]
        with np.errstate(invalid="ignore"):
            figures["precision"] = self.right[:, positive] / self.predicted[:, positive]
        return figures


def measure_numbers(
    y: Floats,
    predicted: Floats,
    *,
    variance: float | None = None,
    unit: float = 1.0,
    group: Index | None = None,
    groups: int = 1,
) -> Figures:
    """R2, RMSE and MAE for each group of rows.

    R2 divides by `variance`, or without one by the variance of the group's own outcomes. `unit` is
    what one unit of y is in the units of RMSE and MAE.
    """
    rows = _group_sums(np.ones(len(y)), group, groups)
    errors = predicted - y
    with np.errstate(invalid="ignore", divide="ignore"):
        squared = _group_sums(np.square(errors), group, groups) / rows
        absolute = _group_sums(np.abs(errors), group, groups) / rows
        if variance is None:
            means = _group_sums(y, group, groups) / rows
            centred = y - (means[0] if group is None else means[group])
            spread = _group_sums(np.square(centred), group, groups) / rows
        else:
            spread = np.full(groups, variance)
        r2 = 1 - squared / np.where(spread > 0, spread, np.nan)
    return {"r2": r2, "rmse": np.sqrt(squared) * unit, "mae": absolute * unit}


def brier_errors(y: Index, probabilities: Floats) -> Floats:
    """Each row's squared error of the probabilities; of two classes, that of one of them. # (n,)"""
    if probabilities.shape[1] == 2:
        return np.square(probabilities[:, 1].astype(np.float64) - y)
    doubles = probabilities.astype(np.float64)
    squared = np.einsum("nc,nc->n", doubles, doubles)
    errors: Floats = squared + 1 - 2 * doubles[np.arange(len(y)), y]
    return errors


def _measure_ranking(
    y: Index, probabilities: Floats, classes: list[int], group: Index | None, groups: int
) -> Figures:
    """Each of these classes against all others; of several, the mean of those that are known."""
    codes = np.zeros(len(y), np.int64) if group is None else group
    at_once = max(1, KEYS // max(1, len(y)))
    auc: list[Floats] = []
    average_precision: list[Floats] = []
    for first in range(0, len(classes), at_once):
        chunk = classes[first : first + at_once]
        positive = y[:, None] == np.array(chunk)
        scores = probabilities[:, chunk]
        pair = codes[:, None] + groups * np.arange(len(chunk))
        ranking = Ranking.of(scores.ravel(), positive.ravel(), pair.ravel(), groups * len(chunk))
        shape = (len(chunk), groups)
        auc += [*ranking.roc_auc.reshape(shape)]
        average_precision += [*ranking.average_precision.reshape(shape)]
    return {
        "auc": _mean_of_known(np.stack(auc, 1)),
        "average_precision": _mean_of_known(np.stack(average_precision, 1)),
    }


def _mean_of_known(values: Floats) -> Floats:
    """The mean over classes, of those that have a value. # (groups, classes) -> (groups,)"""
    is_known = ~np.isnan(values)
    summed = np.where(is_known, values, 0.0).sum(1)
    mean: Floats = summed / np.where(is_known.any(1), is_known.sum(1), np.nan)
    return mean


def _group_sums(values: Floats, group: Index | None, groups: int) -> Floats:
    """# (n,) -> (groups,)"""
    if groups == 1:
        return np.array([values.sum()])
    assert group is not None
    sums: Any = np.bincount(group, values, groups)
    return sums  # type: ignore[no-any-return]
