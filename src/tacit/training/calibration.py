"""Whether probabilities mean what they say: of the rows with about 0.7, are seven in ten positive?

>>> curve = calibrate(np.array([0.1, 0.2, 0.72, 0.78]), np.array([False, False, True, False]))
>>> curve.rows[0].tolist(), curve.observed[0].tolist()[7]
([0, 1, 1, 0, 0, 0, 0, 2, 0, 0], 0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.arrays import Floats, Index

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Rows by the tenth that their probability is in, for each group. # (groups, BINS)

    Sites can add up `rows`, `expected` and `happened`.
    """

    rows: Index
    expected: Floats  # the sum of the probabilities
    happened: Index  # how often it was so

    @property
    def predicted(self) -> Floats:
        """The mean probability; NaN in an empty bin."""
        return _share(self.expected, self.rows)

    @property
    def observed(self) -> Floats:
        """How often it was so; NaN in an empty bin."""
        return _share(self.happened, self.rows)

    @property
    def error(self) -> Floats:
        """The expected calibration error: the mean distance of the two, over rows. # (groups,)"""
        distance = np.abs(self.expected - self.happened).sum(1)
        return _share(distance, self.rows.sum(1))


def calibrate(
    probabilities: Floats, happened: Index, group: Index | None = None, groups: int = 1
) -> Calibration:
    """The curve of each group of rows (n,); a row whose probability is no number is left out."""
    is_finite = np.isfinite(probabilities)
    doubles = probabilities[is_finite].astype(np.float64)
    happened = happened[is_finite]
    bins = (doubles * BINS).astype(np.int64).clip(0, BINS - 1)
    if group is not None:
        bins = bins + group[is_finite] * BINS
    size = groups * BINS
    shape = (groups, BINS)
    rows = np.bincount(bins, minlength=size)
    expected: Any = np.bincount(bins, doubles, size)
    times = np.bincount(bins[happened.astype(bool)], minlength=size)
    return Calibration(rows.reshape(shape), expected.reshape(shape), times.reshape(shape))


def _share(above: Floats | Index, below: Index) -> Floats:
    share: Floats = np.full(below.shape, np.nan)
    np.divide(above, below, out=share, where=below > 0)
    return share
