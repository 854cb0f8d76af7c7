"""How much a model relies on each column: it is shuffled, and the metric becomes worse.

Breiman: Random Forests, 2001, section 10. All features that a table's column became are shuffled
together. A column that another one can stand in for seems to matter little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.core.arrays import Floats
from tacit.core.seeds import numpy_generator
from tacit.data.dataset import Dataset
from tacit.training.evaluation import Answers
from tacit.training.yardstick import Yardstick

MOST_ROWS = 1000  # of a test that are shuffled
MOST_COLUMNS = 200
NUMBERS = 10_000_000  # features of several shuffles together


@dataclass(frozen=True)
class FeatureColumn:
    """A column of a table, and the features that it became."""

    name: str
    features: tuple[int, ...]


def feature_columns(dataset: Dataset) -> list[FeatureColumn]:
    """The columns of a table; none of pictures, of data without names, and of very many columns."""
    if dataset.x.dim() != 2 or not dataset.columns:
        return []
    columns = []
    if dataset.encoding is None:
        for position, name in enumerate(dataset.columns):
            columns.append(FeatureColumn(name, (position,)))
    else:
        first = 0
        for column in dataset.encoding.columns:
            features = tuple(range(first, first + len(column.names)))
            columns.append(FeatureColumn(column.name, features))
            first += len(column.names)
    return columns if len(columns) <= MOST_COLUMNS else []


def importance(
    yardstick: Yardstick,
    answer: Callable[[Tensor, Tensor], Answers],
    samples: tuple[Tensor, Tensor],
    columns: Sequence[FeatureColumn],
    repeats: int,
) -> list[tuple[float, float]]:
    """For each column the mean drop of the deciding metric, and its deviation over the repeats.

    Of an error, a drop is its growth.
    """
    rng = numpy_generator(0, "importance", len(samples[1]))
    x, y = _some_rows(samples, rng)
    orders = [torch.from_numpy(rng.permutation(len(y))) for _ in range(repeats)]
    before = _merits(yardstick, answer(x, y), y, 1)[0]
    at_once = max(1, NUMBERS // max(1, x.numel() * repeats))
    drops: list[tuple[float, float]] = []
    for first in range(0, len(columns), at_once):
        chunk = columns[first : first + at_once]
        shuffled: list[Tensor] = []
        for column in chunk:
            shuffled += [_shuffled(x, column, order) for order in orders]
        outcomes = y.repeat(len(shuffled))
        answers = answer(torch.cat(shuffled), outcomes)
        merits = _merits(yardstick, answers, outcomes, len(shuffled))
        by_column = (before - merits).reshape(len(chunk), repeats)
        drops += [(float(drop.mean()), float(drop.std())) for drop in by_column]
    return drops


def _some_rows(samples: tuple[Tensor, Tensor], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """All rows or, of very many, some."""
    x, y = samples
    if len(y) <= MOST_ROWS:
        return x, y
    chosen = torch.from_numpy(rng.choice(len(y), MOST_ROWS, replace=False))
    return x[chosen.to(x.device)], y[chosen.to(y.device)]


def _merits(yardstick: Yardstick, answers: Answers, y: Tensor, groups: int) -> Floats:
    """The merit of each of several tests of equal size. # (groups,)"""
    group = np.repeat(np.arange(groups), len(y) // groups)
    ranked = yardstick.metric.is_ranking
    figures = yardstick.measure(answers, y.cpu(), group, groups, ranked=ranked)
    values = figures[yardstick.name]
    return -values if yardstick.metric.lowest_is_best else values


def _shuffled(x: Tensor, column: FeatureColumn, order: Tensor) -> Tensor:
    """A copy of the samples whose features of this column come from other samples."""
    features = list(column.features)
    copy = x.clone()
    copy[:, features] = x[order.to(x.device)][:, features]
    return copy
