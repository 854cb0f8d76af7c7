"""How sure the comparison is: intervals of figures, and differences that are larger than chance.

With several seeds, both follow from how much the seeds differ (Student's t; differences seed by
seed). With one seed, they follow from the test set: its rows are drawn again (bootstrap). So the
former say what another start would give, and the latter what another test set would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.report.study_tables import StudyTables
from tacit.training.metrics import METRICS

LEVEL = 0.95
Limits = tuple[float, float]


@dataclass(frozen=True)
class Lead:
    """How much better the best method of a column is than another one, by the deciding metric."""

    column: str
    best: str
    other: str
    by: float  # in merit, so it is never below zero but for missing seeds
    limits: Limits | None
    is_real: bool  # larger than chance, with Holm's correction for several comparisons

    @property
    def text(self) -> str:
        """In words."""
        if self.limits is None:
            return f"{self.best} against {self.other}: too little is known to compare them"
        low, high = self.limits
        verdict = "larger than chance" if self.is_real else "may be chance"
        return (
            f"{self.best} is ahead of {self.other} by {self.by:.4f}"
            f" (95 % interval {low:.4f} to {high:.4f}): {verdict}"
        )


def figure_limits(results: StudyTables, metric: str | None = None) -> dict[tuple[str, str], Limits]:
    """The 95 % interval of each cell of a table, where there is one."""
    metric = metric or results.score
    limits = {}
    for cell, runs in _cells(results).items():
        found = _limits(results, runs, metric)
        if found is not None:
            limits[cell] = found
    return limits


def leads(results: StudyTables) -> list[Lead]:
    """In each column, the best method against every other one."""
    found: list[Lead] = []
    cells = _cells(results)
    for column in results.column_names:
        methods = [name for name in results.methods if (name, column) in cells]
        values = {name: _by_seed(results, cells[name, column]) for name in methods}
        means = {name: mean_of(list(by_seed.values())) for name, by_seed in values.items()}
        known = [name for name in methods if not math.isnan(means[name])]
        if len(known) < 2:
            continue
        best = max(known, key=lambda name: means[name])
        others = [name for name in known if name != best]
        tests = [_compare(results, cells[best, column], cells[name, column]) for name in others]
        are_real = holm([chance for _, _, chance in tests])
        for name, (by, limits, _), is_real in zip(others, tests, are_real, strict=True):
            found.append(Lead(column, best, name, by, limits, is_real))
    return found


def holm(chances: Sequence[float]) -> list[bool]:
    """Which of several differences are larger than chance; each makes the others harder.

    Holm: A Simple Sequentially Rejective Multiple Test Procedure, 1979.

    >>> holm([0.001, 0.04, 0.03])
    [True, False, False]
    """
    order = sorted(range(len(chances)), key=lambda k: chances[k])
    are_real = [False] * len(chances)
    for rank, k in enumerate(order):
        if not chances[k] <= (1 - LEVEL) / (len(chances) - rank):
            break
        are_real[k] = True
    return are_real


def _cells(results: StudyTables) -> dict[tuple[str, str], list[str]]:
    """The runs of each method and column that have ended and not diverged."""
    cells: dict[tuple[str, str], list[str]] = {}
    if results.summary().empty:
        return cells
    lost = set()
    statuses: dict[Any, str] = results.summary().set_index("run")["status"].to_dict()
    for run in results.labels:
        cell = (results.names[run], results.column_of(run))
        if statuses.get(run, "running") in ("running", "diverged"):
            lost.add(cell)
        cells.setdefault(cell, []).append(run)
    return {cell: runs for cell, runs in cells.items() if cell not in lost}


def _limits(results: StudyTables, runs: Sequence[str], metric: str) -> Limits | None:
    if len(runs) > 1:
        values = results.summary().set_index("run")[metric].reindex(list(runs))
        limits = _student(values.to_numpy(float))[1]
        return None if limits is None else _possible(limits, metric)
    assessment = results.assessment(runs[0])
    limits = (assessment or {}).get("bootstrap", {}).get("intervals", {}).get(metric)
    return (limits[0], limits[1]) if limits else None


def _possible(limits: Limits, metric: str) -> Limits:
    """The part of an interval that the metric can take: shares go from 0 to 1, R2 up to 1."""
    low, high = limits
    known = METRICS.get(metric)
    if known is None or known.in_units:
        return limits
    if known.task == "classification":
        low = max(low, 0.0)
    return low, min(high, 1.0)


def _by_seed(results: StudyTables, runs: Sequence[str]) -> dict[int, float]:
    """The merit of each run, by its seed."""
    figures = results.summary().set_index("run")[results.score]
    merits = {}
    for run in runs:
        merits[results.outline.runs[run].seed] = results.metric.merit(float(figures[run]))
    return merits


def _compare(
    results: StudyTables, best: Sequence[str], other: Sequence[str]
) -> tuple[float, Limits | None, float]:
    """The difference, its interval, and how often chance alone would give one as large."""
    if len(best) == 1 and len(other) == 1:
        return _compare_draws(results, best[0], other[0])
    best_by_seed = _by_seed(results, best)
    other_by_seed = _by_seed(results, other)
    shared = [seed for seed in best_by_seed if seed in other_by_seed]
    gaps = np.array([best_by_seed[seed] - other_by_seed[seed] for seed in shared])
    chance, limits = _student(gaps)
    return mean_of(list(gaps)), limits, chance


def _compare_draws(
    results: StudyTables, best: str, other: str
) -> tuple[float, Limits | None, float]:
    """By the draws of the test set's rows, which are the same for all models."""
    gap = mean_of(list(_by_seed(results, [best]).values()))
    gap -= mean_of(list(_by_seed(results, [other]).values()))
    best_draws = _merits_of_draws(results, best)
    other_draws = _merits_of_draws(results, other)
    if len(best_draws) != len(other_draws) or not len(best_draws):
        return gap, None, 1.0
    deviation = float(np.nanstd(best_draws - other_draws))
    if not deviation > 0:
        return gap, (gap, gap) if deviation == 0 else None, 1.0 if gap == 0 else 0.0
    from scipy import stats

    chance = 2 * float(stats.norm.sf(abs(gap) / deviation))
    reach = float(stats.norm.ppf((1 + LEVEL) / 2)) * deviation
    return gap, (gap - reach, gap + reach), chance


def _merits_of_draws(results: StudyTables, run: str) -> Floats:
    """The merit in each draw of the test rows; empty where draws are of another metric."""
    bootstrap = (results.assessment(run) or {}).get("bootstrap", {})
    if bootstrap.get("metric") != results.score:
        return np.zeros(0)
    values = np.array(bootstrap["draws"], float)  # None becomes NaN
    return -values if results.metric.lowest_is_best else values


def _student(values: Floats) -> tuple[float, Limits | None]:
    """How often chance alone gives a mean so far from zero, and the interval of the mean."""
    from scipy import stats

    count = len(values)
    if count < 2 or not np.isfinite(values).all():
        return 1.0, None
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(count)
    if error == 0:
        return (1.0 if mean == 0 else 0.0), (mean, mean)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    chance = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return chance, (mean - reach, mean + reach)


def mean_of(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
