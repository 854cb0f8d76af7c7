"""Fewer numbers, where a page would have too many."""

from __future__ import annotations

import math


def choose_rounds(longest: int, most: int) -> set[int]:
    """At most so many rounds, the first and the last of the longest run among them.

    They are the same for all runs, since a mean over seeds needs all seeds at each of its rounds.
    """
    if longest <= most:
        return set(range(1, longest + 1))
    return {1 + round(number * (longest - 1) / (most - 1)) for number in range(most)}


def round_digits(value: float | None, digits: int = 5) -> float | None:
    """A number to so many significant digits; None for what is no number."""
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.{digits}g}")
