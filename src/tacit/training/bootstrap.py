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
AT_ONCE = 500_000  # rows of several draws together
LEVEL = 0.95


def draw_again(yardstick: Yardstick, answers: Answers, y: Tensor) -> Figures:
    """The figures of each draw. # metric -> (DRAWS,)

    Metrics that need sorting are left out if there are many classes and none of them decides.
    """
    rows = len(y)
    size = min(rows, MOST)
    ranked = yardstick.classes == 2 or yardstick.metric.is_ranking
    measure = partial(yardstick.measure, ranked=ranked, own_variance=True)
    rng = numpy_generator(0, "bootstrap", rows)
    at_once = max(1, AT_ONCE // max(1, size))
    parts: list[Figures] = []
    for first in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - first)
        index = torch.from_numpy(rng.integers(0, rows, draws * size))
        group = np.repeat(np.arange(draws), size)
        drawn = _take(answers, index)
        parts.append(measure(drawn, y[index], group, draws))
    scale = math.sqrt(size / rows)
    figures = {}
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        centre = float(np.nanmean(values)) if not np.isnan(values).all() else 0.0
        figures[name] = centre + (values - centre) * scale
    return figures


def interval(values: Floats) -> tuple[float, float] | None:
    """Where the middle of the draws lies; None if a fifth of them had no figure."""
    known = values[np.isfinite(values)]
    if len(known) < 0.8 * len(values):
        return None
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(known, [outside, 1 - outside])
    return float(low), float(high)


def _take(answers: Answers, index: Tensor) -> Answers:
    """The answers to these samples."""
    classes = answers.classes[index] if len(answers.classes) else answers.classes
    return Answers(answers.losses[index], answers.predicted[index], classes)
