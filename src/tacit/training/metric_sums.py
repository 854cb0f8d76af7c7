"""What a site can tell of its rows so that the metrics of all sites together become known.

These are sums, which are added up; no row leaves its site. For the area under the ROC curve and
the average precision they hold a histogram of scores. It is fine where probabilities are near 0
or 1, and leaves an error that is known.

>>> y = np.array([0, 1, 1, 0])
>>> probabilities = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])
>>> sites = [ClassSums.of(y[:2], probabilities[:2]), ClassSums.of(y[2:], probabilities[2:])]
>>> together = sites[0] + sites[1]
>>> together.metrics()["accuracy"], together.metrics()["auc"], together.errors()["auc"]
(0.75, 1.0, 0.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.core.arrays import Floats, Index
from tacit.core.errors import DataError
from tacit.training.metrics import METRICS, ClassCounts, brier_errors

STEEPEST = 16.0  # log odds beyond which all scores are in the last bin
BINS_A_UNIT = 32  # of log odds
BINS = int(2 * STEEPEST * BINS_A_UNIT)


@dataclass(frozen=True)
class ClassSums:
    """Sums over one site's rows, or over those of several."""

    actual: Index  # rows of each class (classes,)
    predicted: Index  # rows that were taken for each class
    right: Index  # and rightly so
    squared: float  # error of the probabilities, as in the Brier score
    positives: Index  # of each class, by bins of its score (classes, BINS)
    negatives: Index
    positive: int = 1  # which of two classes metrics are about

    @classmethod
    def of(
        cls, y: Index, probabilities: Floats, *, positive: int = 1, predicted: Index | None = None
    ) -> ClassSums:
        """A site's own sums. `predicted` are classes; by default, the most likely ones."""
        classes = probabilities.shape[1]
        if predicted is None:
            predicted = probabilities.argmax(1)
        counts = ClassCounts.of(y, predicted, classes)
        ranked = [positive] if classes == 2 else range(classes)
        positives = []
        negatives = []
        for label in ranked:
            bins = _bins(probabilities[:, label])
            is_positive = y == label
            positives.append(np.bincount(bins[is_positive], minlength=BINS))
            negatives.append(np.bincount(bins[~is_positive], minlength=BINS))
        return cls(
            actual=counts.actual[0],
            predicted=counts.predicted[0],
            right=counts.right[0],
            squared=float(brier_errors(y, probabilities).sum()),
            positives=np.stack(positives),
            negatives=np.stack(negatives),
            positive=positive,
        )

    def __add__(self, other: ClassSums) -> ClassSums:
        if self.actual.shape != other.actual.shape or self.positive != other.positive:
            raise DataError(
                "expected sums over the same classes with the same positive one, got"
                f" {len(self.actual)} classes (positive: {self.positive}) and"
                f" {len(other.actual)} (positive: {other.positive})"
            )
        return ClassSums(
            actual=self.actual + other.actual,
            predicted=self.predicted + other.predicted,
            right=self.right + other.right,
            squared=self.squared + other.squared,
            positives=self.positives + other.positives,
            negatives=self.negatives + other.negatives,
            positive=self.positive,
        )

    def metrics(self) -> dict[str, float]:
        """Every metric of all rows together."""
        counts = ClassCounts(self.actual[None], self.predicted[None], self.right[None])
        positive = self.positive if len(self.actual) == 2 else None
        figures = {name: float(value[0]) for name, value in counts.metrics(positive).items()}
        rows = int(self.actual.sum())
        figures["brier"] = self.squared / rows if rows else math.nan
        for name, (lowest, highest) in self._ranges().items():
            figures[name] = (lowest + highest) / 2
        return {name: figures[name] for name in METRICS if name in figures}

    def errors(self) -> dict[str, float]:
        """How far each metric can be from that of the rows themselves."""
        errors = dict.fromkeys(self.metrics(), 0.0)
        for name, (lowest, highest) in self._ranges().items():
            errors[name] = (highest - lowest) / 2
        return errors

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that the rows behind the histogram allow."""
        auc = []
        precision = []
        for positives, negatives in zip(self.positives, self.negatives, strict=True):
            if positives.any() and negatives.any():
                auc.append(_auc_range(positives, negatives))
            if positives.any():
                precision.append(_precision_range(positives, negatives))
        return {"auc": _mean_range(auc), "average_precision": _mean_range(precision)}


@dataclass(frozen=True)
class NumberSums:
    """The same for numbers: outcomes and errors, in the target's own units."""

    rows: int
    mean: float  # of the outcomes
    deviations: float  # of the outcomes from their mean, squared and added up
    squared: float  # errors
    absolute: float

    @classmethod
    def of(cls, y: Floats, predicted: Floats) -> NumberSums:
        outcomes = y.astype(np.float64)
        errors = predicted.astype(np.float64) - outcomes
        mean = float(outcomes.mean()) if len(y) else 0.0
        return cls(
            rows=len(y),
            mean=mean,
            deviations=float(np.square(outcomes - mean).sum()),
            squared=float(np.square(errors).sum()),
            absolute=float(np.abs(errors).sum()),
        )

    def __add__(self, other: NumberSums) -> NumberSums:
        """Chan, Golub, LeVeque: Algorithms for Computing the Sample Variance, 1983."""
        rows = self.rows + other.rows
        share = other.rows / rows if rows else 0.0
        gap = other.mean - self.mean
        return NumberSums(
            rows=rows,
            mean=self.mean + gap * share,
            deviations=self.deviations + other.deviations + gap**2 * self.rows * share,
            squared=self.squared + other.squared,
            absolute=self.absolute + other.absolute,
        )

    def metrics(self) -> dict[str, float]:
        """Every metric of all rows together; R2 by the variance of these rows."""
        if not self.rows:
            return dict.fromkeys(("r2", "rmse", "mae"), math.nan)
        variance = self.deviations / self.rows
        mean_squared = self.squared / self.rows
        r2 = 1 - mean_squared / variance if variance > 0 else math.nan
        return {"r2": r2, "rmse": math.sqrt(mean_squared), "mae": self.absolute / self.rows}

    def errors(self) -> dict[str, float]:
        """How far each metric can be from that of the rows themselves."""
        return dict.fromkeys(self.metrics(), 0.0)


def _bins(scores: Floats) -> Index:
    """The bin of each score, by its log odds."""
    doubles = scores.astype(np.float64).clip(0, 1)
    if np.isnan(doubles).any():
        raise DataError("expected probabilities, got NaN; leave those rows out")
    with np.errstate(divide="ignore"):
        odds = np.log(doubles) - np.log1p(-doubles)
    shifted = (np.clip(odds, -STEEPEST, STEEPEST) + STEEPEST) * BINS_A_UNIT
    bins: Index = np.minimum(shifted.astype(np.int64), BINS - 1)
    return bins


def _auc_range(positives: Index, negatives: Index) -> tuple[float, float]:
    """With all negatives of a bin above its positives, and with all below."""
    below = np.cumsum(negatives) - negatives
    pairs = int(positives.sum()) * int(negatives.sum())
    lowest = int((positives * below).sum()) / pairs
    undecided = int((positives * negatives).sum()) / pairs
    return lowest, lowest + undecided


def _precision_range(positives: Index, negatives: Index) -> tuple[float, float]:
    """The same for the average precision."""
    total = int(positives.sum())
    from_top = np.repeat(np.arange(BINS)[::-1], positives[::-1])  # the bin of each positive
    rank = np.arange(1, total + 1)  # among the positives, each with a score of its own
    last_rank = np.cumsum(positives[::-1])[::-1][from_top]  # where a bin's have one score
    negatives_to = np.cumsum(negatives[::-1])[::-1]  # in this bin and above
    lowest = (rank / (rank + negatives_to[from_top])).sum() / total
    negatives_above = negatives_to[from_top] - negatives[from_top]
    highest = (last_rank / (last_rank + negatives_above)).sum() / total
    return float(lowest), float(highest)


def _mean_range(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    if not ranges:
        return math.nan, math.nan
    lowest = sum(low for low, _ in ranges) / len(ranges)
    highest = sum(high for _, high in ranges) / len(ranges)
    return lowest, highest
