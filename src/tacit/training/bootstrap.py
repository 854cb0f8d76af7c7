"""How far a test's figures would differ had it had other rows: they are drawn again, with repeats.

Efron: Bootstrap Methods, 1979. The draws depend on the number of rows alone, so models that are
tested on the same rows are compared draw by draw.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.core.arrays import Floats
from tacit.core.seeds import numpy_generator
from tacit.training.evaluation import Answers
from tacit.training.metrics import Figures
from tacit.training.yardstick import Yardstick

DRAWS = 250
MOST = 4000  # rows in a draw; of more, the deviations of these are scaled down
FEWEST = 200
NUMBERS = 1_000_000  # probabilities of several draws together
LEVEL = 0.95


def draw_again(yardstick: Yardstick, answers: Answers, y: Tensor) -> Figures:
    """The figures of each draw. # metric -> (DRAWS,)

    Metrics that need sorting are left out if there are many classes and none of them decides.
    """
    rows = len(y)
    size = min(rows, MOST, max(FEWEST, NUMBERS // max(1, yardstick.classes)))
    ranked = yardstick.classes == 2 or yardstick.metric.is_ranking
    measure = partial(yardstick.measure, ranked=ranked, own_variance=True)
    rng = numpy_generator(0, "bootstrap", rows)
    at_once = max(1, NUMBERS // max(1, size * max(1, yardstick.classes)))
    chunks: list[Figures] = []
    for first in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - first)
        index = torch.from_numpy(rng.integers(0, rows, draws * size))
        group = np.repeat(np.arange(draws), size)
        drawn = _take(answers, index)
        chunks.append(measure(drawn, y[index], group, draws))
    draws_of: Figures = {}
    for name in chunks[0]:
        draws_of[name] = np.concatenate([chunk[name] for chunk in chunks])
    if size == rows:
        return draws_of
    return _scaled(draws_of, measure(answers, y), math.sqrt(size / rows))


def _scaled(draws_of: Figures, figures: Figures, scale: float) -> Figures:
    """The draws of some rows, as those of all rows would be: around the figure of all rows.

    Few rows do not only scatter more; of a rare class, some metrics also become higher or lower.
    """
    scaled = {}
    for name, values in draws_of.items():
        is_known = np.isfinite(values).any()
        centre = float(np.nanmean(values)) if is_known else 0.0
        scaled[name] = figures[name][0] + (values - centre) * scale
    return scaled


def interval(values: Floats) -> tuple[float, float] | None:
    """Where the middle of the draws lies; None if a fifth of them had no figure."""
    finite = values[np.isfinite(values)]
    if len(finite) < 0.8 * len(values):
        return None
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(finite, [outside, 1 - outside])
    return float(low), float(high)


def _take(answers: Answers, index: Tensor) -> Answers:
    """The answers to these samples."""
    classes = answers.classes[index] if len(answers.classes) else answers.classes
    return Answers(answers.losses[index], answers.predicted[index], classes)
