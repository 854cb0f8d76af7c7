"""How sure the comparison is: intervals of figures, and differences that are larger than chance.

Two things are by chance: which rows are tested on, and, with several seeds, which starts the seeds
gave. For the former, the rows are drawn again (bootstrap); for the latter, the seeds' scatter is
used (Student's t; differences seed by seed). The variances are added up, and the degrees of freedom
are Satterthwaite's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.report.study_tables import StudyTables
from tacit.study.kinds.reference import ALL_DATA
from tacit.training.metrics import METRICS

LEVEL = 0.95
NORMAL_REACH = 1.96  # standard deviations from the mean to the ends of such an interval
NORMAL = 1e12  # degrees of freedom with which Student's t is the normal distribution
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
        if low == high == 0:
            return f"{self.best} and {self.other} are equal"
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
        interval = _limits(results, runs, metric)
        if interval is not None:
            limits[cell] = interval
    return limits


def leads(results: StudyTables) -> list[Lead]:
    """In each column, the best method against every other one."""
    leads_of_columns: list[Lead] = []
    cells = _cells(results)
    for column in results.column_names:
        methods = [name for name in results.methods if (name, column) in cells]
        values = {name: _by_seed(results, cells[name, column]) for name in methods}
        means = {name: mean_of(list(by_seed.values())) for name, by_seed in values.items()}
        measured = [name for name in methods if not math.isnan(means[name])]
        if len(measured) < 2:
            continue
        best = max(measured, key=lambda name: means[name])
        rivals = [name for name in measured if name != best]
        rivals = [name for name in rivals if _share_data(results, cells, (best, name), column)]
        if not rivals:
            continue
        tests = [_compare(results, cells[best, column], cells[name, column]) for name in rivals]
        # the best was chosen among all, so that each pair of methods could have been compared
        chosen = (len(rivals) + 1) / 2
        are_real = holm([min(1.0, chosen * chance) for _, _, chance in tests])
        for name, (by, limits, _), is_real in zip(rivals, tests, are_real, strict=True):
            leads_of_columns.append(Lead(column, best, name, by, limits, is_real))
    return leads_of_columns


def _share_data(
    results: StudyTables,
    cells: dict[tuple[str, str], list[str]],
    methods: tuple[str, str],
    column: str,
) -> bool:
    """Whether two methods are tested on the same data set."""
    if results.data is None:
        return True
    positions = set()
    for method in methods:
        positions |= {results.data.dataset_of.get(run) for run in cells[method, column]}
    return len(positions) == 1


def behind_reference(results: StudyTables, method: str, column: str) -> Lead | None:
    """How far all the data in one place are ahead of a method, or behind it."""
    cells = _cells(results)
    if (method, column) not in cells:
        return None
    for reference in results.references:
        for place in (column, ALL_DATA):
            if (reference, place) in cells:
                pair = (cells[reference, place], cells[method, column])
                by, limits, chance = _compare(results, *pair)
                is_real = chance <= 1 - LEVEL
                return Lead(column, reference, method, by, limits, is_real)
    return None


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
        limits = _judge(values.to_numpy(float), _test_deviation(results, runs, metric))[1]
        return None if limits is None else _possible(limits, metric)
    assessment = results.assessment(runs[0])
    limits = (assessment or {}).get("bootstrap", {}).get("intervals", {}).get(metric)
    return (limits[0], limits[1]) if limits else None


def _possible(limits: Limits, metric: str) -> Limits:
    """The part of an interval that the metric can take: shares go from 0 to 1, R2 up to 1."""
    low, high = limits
    known_metric = METRICS.get(metric)
    if known_metric is None or known_metric.in_units:
        return limits
    if known_metric.task == "classification":
        low = max(low, 0.0)
    return low, min(high, 1.0)


def _by_seed(results: StudyTables, runs: Sequence[str]) -> dict[int, float]:
    """The merit of each run, by its seed."""
    figures = results.summary().set_index("run")[results.score]
    merits = {}
    for run in runs:
        merits[results.outline.runs[run].seed] = results.metric.merit(float(figures[run]))
    return merits


def _test_deviation(results: StudyTables, runs: Sequence[str], metric: str) -> float:
    """How far other test rows would move a figure; 0 where that is not known."""
    deviations = []
    for run in runs:
        intervals = (results.assessment(run) or {}).get("bootstrap", {}).get("intervals", {})
        limits = intervals.get(metric)
        if limits:
            deviations.append((limits[1] - limits[0]) / (2 * NORMAL_REACH))
    return mean_of(deviations) if deviations else 0.0


def _compare(
    results: StudyTables, best: Sequence[str], other: Sequence[str]
) -> tuple[float, Limits | None, float]:
    """The difference, its interval, and how often chance alone would give one as large."""
    best_by_seed = _by_seed(results, best)
    other_by_seed = _by_seed(results, other)
    shared = [seed for seed in best_by_seed if seed in other_by_seed]
    gaps = np.array([best_by_seed[seed] - other_by_seed[seed] for seed in shared])
    deviation = _gap_deviation(results, best, other)
    gap = mean_of(list(gaps))
    if len(gaps) < 2 and deviation is None:
        return gap, None, 1.0
    chance, limits = _judge(gaps, deviation or 0.0)
    return gap, limits, chance


def _gap_deviation(results: StudyTables, best: Sequence[str], other: Sequence[str]) -> float | None:
    """How far other test rows would move a difference: by the draws, which all models share."""
    outlines = results.outline.runs
    rival_by_seed = {outlines[run].seed: run for run in other}
    gaps = []
    for run in best:
        rival = rival_by_seed.get(outlines[run].seed)
        if rival is None:
            continue
        best_draws = _merits_of_draws(results, run)
        other_draws = _merits_of_draws(results, rival)
        if len(best_draws) and len(best_draws) == len(other_draws):
            gaps.append(best_draws - other_draws)
    return float(np.nanstd(np.mean(gaps, axis=0))) if gaps else None


def _merits_of_draws(results: StudyTables, run: str) -> Floats:
    """The merit in each draw of the test rows; empty where draws are of another metric."""
    bootstrap = (results.assessment(run) or {}).get("bootstrap", {})
    if bootstrap.get("metric") != results.score:
        return np.zeros(0)
    values = np.array(bootstrap["draws"], float)  # None becomes NaN
    return -values if results.metric.lowest_is_best else values


def _judge(values: Floats, test_deviation: float) -> tuple[float, Limits | None]:
    """How often chance alone gives a mean so far from zero, and the interval of the mean.

    `values` are those of the seeds.
    """
    from scipy import special  # scipy.stats takes a second to import

    count = len(values)
    if not count or not np.isfinite(values).all() or not math.isfinite(test_deviation):
        return 1.0, None
    mean = float(values.mean())
    of_seeds = float(values.var(ddof=1)) / count if count > 1 else 0.0
    variance = of_seeds + test_deviation**2
    if variance == 0:
        return 1.0, (mean, mean)  # nothing is known of chance
    freedom = NORMAL
    if of_seeds > 0:
        freedom = min(NORMAL, (count - 1) * (variance / of_seeds) ** 2)
    error = math.sqrt(variance)
    reach = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    chance = 2 * float(special.stdtr(freedom, -abs(mean) / error))
    return chance, (mean - reach, mean + reach)


def mean_of(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
