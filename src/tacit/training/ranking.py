"""How well scores rank positives above negatives, for many groups of rows in one sort.

>>> scores = np.array([0.1, 0.4, 0.35, 0.8])
>>> positive = np.array([False, False, True, True])
>>> ranking = Ranking.of(scores, positive)
>>> ranking.roc_auc.tolist(), ranking.average_precision.round(4).tolist()
([0.75], [0.8333])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.arrays import Floats, Index

Keys = NDArray[np.uint64]
POSITIVE = np.uint64(1)  # the lowest bit of a key
GROUP = np.uint64(33)  # where the group begins in a key, above 32 bits of the score


@dataclass(frozen=True)
class Ranking:
    """The scores that positives have, in ascending order, group by group.

    A metric is NaN for a group that lacks the rows for it: without positives both are, and without
    negatives the area under the ROC curve is.
    """

    group: Index  # of each score
    positives: Index  # that have this score
    negatives: Index  # that have this score
    positives_below: Index  # that have a lower score
    negatives_below: Index
    total_positives: Index  # (groups,)
    total_negatives: Index  # (groups,)

    @classmethod
    def of(
        cls,
        scores: NDArray[np.floating],
        positive: NDArray[np.bool_],
        group: Index | None = None,
        groups: int = 1,
    ) -> Ranking:
        """Ranks rows (n,) of these groups. No score may be NaN."""
        keys = (_ordinal(scores) << POSITIVE) | positive
        if group is not None:
            keys |= group.astype(np.uint64) << GROUP
        keys.sort()  # one sort of whole numbers is the fastest
        return cls._of_sorted(keys, groups)

    @classmethod
    def _of_sorted(cls, keys: Keys, groups: int) -> Ranking:
        seen = np.cumsum(keys & POSITIVE, dtype=np.int64)  # positives up to each row
        score = keys >> POSITIVE
        is_last = np.ones(len(keys), bool)  # of the rows with its score
        np.not_equal(score[1:], score[:-1], out=is_last[:-1])
        last = np.flatnonzero(is_last)
        seen_there = seen[last]
        positives = np.diff(seen_there, prepend=0)
        first = np.zeros_like(last)
        first[1:] = last[:-1] + 1
        has_positives = np.flatnonzero(positives)  # all that the metrics need
        positives = positives[has_positives]
        first = first[has_positives]
        last = last[has_positives]
        group = (keys[last] >> GROUP).astype(np.int64)
        bounds = np.arange(groups + 1, dtype=np.uint64) << GROUP
        edges = np.searchsorted(keys, bounds)  # where each group begins
        seen_before = np.concatenate([[0], seen])[edges]
        total_positives = np.diff(seen_before)
        positives_below = seen_there[has_positives] - positives - seen_before[group]
        return cls(
            group=group,
            positives=positives,
            negatives=last - first + 1 - positives,
            positives_below=positives_below,
            negatives_below=first - edges[group] - positives_below,
            total_positives=total_positives,
            total_negatives=np.diff(edges) - total_positives,
        )

    @property
    def roc_auc(self) -> Floats:
        """How often a positive has a higher score than a negative; a tie is half. # (groups,)"""
        twice_won = self.positives * (2 * self.negatives_below + self.negatives)
        running = np.concatenate([[0], np.cumsum(twice_won)])  # in whole numbers, so exact
        edges = np.searchsorted(self.group, np.arange(len(self.total_positives) + 1))
        pairs = self.total_positives * self.total_negatives
        return _divide(np.diff(running[edges]), 2 * pairs)

    @property
    def average_precision(self) -> Floats:
        """The mean of the precision at each positive, as scikit-learn defines it. # (groups,)"""
        positives = self.total_positives[self.group] - self.positives_below
        negatives = self.total_negatives[self.group] - self.negatives_below
        precision = positives / (positives + negatives)
        groups = len(self.total_positives)
        summed = np.bincount(self.group, self.positives * precision, groups)
        return _divide(summed, self.total_positives)


def _ordinal(scores: NDArray[np.floating]) -> Keys:
    """Whole numbers below 2^32 in the order of the scores; equal scores get equal numbers."""
    if scores.dtype == np.float32 and scores.size and scores.min() >= 0:
        # the bits of floats that are not negative are in the order of the floats
        bits = np.ascontiguousarray(scores + np.float32(0)).view(np.uint32)
        return bits.astype(np.uint64)
    _, codes = np.unique(scores, return_inverse=True)
    ordinal: Keys = codes.reshape(scores.shape).astype(np.uint64)
    return ordinal


def _divide(above: NDArray[np.generic], below: Index) -> Floats:
    """The quotient, NaN where nothing is below the line."""
    quotient: Floats = np.full(len(below), np.nan)
    np.divide(above, below, out=quotient, where=below > 0)
    return quotient
