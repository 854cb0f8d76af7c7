"""What a reader should take away first, in sentences: on top of the page, and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.records.data_summary import DatasetSummary
from tacit.report.metric_frame import guess_figures, guess_name
from tacit.report.study_tables import StudyTables
from tacit.report.uncertainty import behind_reference, figure_limits, leads
from tacit.study.run_names import TEST
from tacit.training.metrics import METRICS

LEAST_ROWS = 20  # of a group whose figure is told
LEAST_OF_CLASS = 10  # of these, positives and negatives
RARE_SHARE = 0.25  # of the rows: weights help to find a class with less
FEW_FOUND = 0.5  # of the positives: a model that finds fewer needs a word
HARDLY = 0.1  # of what is left to gain above a guess
POOR_CALIBRATION = 0.1
MOST_NAMES = 5  # of classes in a sentence
SAME = 5e-5  # what four digits do not show


@dataclass(frozen=True)
class Finding:
    """A sentence; a warning is about what misleads."""

    text: str
    is_warning: bool = False


def find(results: StudyTables) -> list[Finding]:
    """The findings of a study of which some run has ended well."""
    best = _best_run(results)
    if best is None:
        return list(_unknown(results))
    findings = list(_metric(results))
    judged = [best]
    if results.columns == TEST and _leaves_clients_out(results):
        method = _best_method(results)
        judged = _runs_of(results, method)
        findings += _left_out(results, method)
    else:
        findings += _best(results, best)
        findings += _against_reference(results, best)
        findings += _absent(results.data.of(best) if results.data else None)
    rare = list(_rare(results, judged))
    findings += rare
    if results.score == results.basis or any(finding.is_warning for finding in rare):
        findings += _gain(results, judged)
    findings += _calibration(results, judged)
    if len(judged) == 1:
        findings += _groups(results, judged[0])
    findings += _comparisons(results)
    return findings


def _best_run(results: StudyTables) -> str | None:
    """Of the method and column with the best mean, the best seed; so the tables say the same."""
    best = results.best_if_any()
    if best is None or results.outline.runs[best].is_reference:
        return best
    table = results.table()
    figures = results.summary().set_index("run")[results.score].dropna()
    merits: dict[str, tuple[float, float]] = {}  # of the mean, and of the run itself
    for run, figure in figures.items():
        cell: Any = table.loc[results.names[str(run)], results.column_of(str(run))]
        if not math.isnan(cell) and not results.outline.runs[str(run)].is_reference:
            merits[str(run)] = (results.metric.merit(cell), results.metric.merit(figure))
    return max(merits, key=lambda run: merits[run]) if merits else best


def _unknown(results: StudyTables) -> Iterator[Finding]:
    """Why no run has a figure, where the test set is the reason."""
    if results.data is None or results.summary().empty:
        return
    if (results.summary()["status"] == "diverged").all():
        return
    for dataset in results.data.datasets:
        for finding in _absent(dataset):
            text = f"{finding.text}, so no model has a {results.score_name}; choose another metric"
            yield Finding(text, is_warning=True)


def _absent(dataset: DatasetSummary | None) -> Iterator[Finding]:
    """The classes that nothing can be said of."""
    if dataset is None:
        return
    counts = zip(dataset.labels, dataset.test_counts, strict=False)  # of very many, none is counted
    absent = [label for label, count in counts if not count]
    if absent:
        names = ", ".join(absent[:MOST_NAMES])
        more = ", ..." if len(absent) > MOST_NAMES else ""
        yield Finding(f"the test set has no row of {names}{more}", is_warning=True)


def _metric(results: StudyTables) -> Iterator[Finding]:
    if results.data is not None and results.data.reason.startswith("since"):
        yield Finding(f"{results.score_name} decides, {results.data.reason}")


def _best(results: StudyTables, best: str) -> Iterator[Finding]:
    """The best run, how sure its figure is, and what a guess reaches."""
    method = results.names[best]
    column = results.column_of(best)
    cell: Any = results.table().loc[method, column]
    figure = float(cell)
    if math.isnan(figure):  # another seed has diverged
        figure = float(results.summary().set_index("run")[results.score][best])
    text = f"{method} has {results.score_name} {figure:.4f}"
    if len(results.methods) > 1:
        text = f"the best is {method} with {results.score_name} {figure:.4f}"
    if len(results.column_names) > 1:
        text += f" on {column}"
    limits = figure_limits(results).get((method, column))
    if limits is not None:
        text += f" (95 % interval {limits[0]:.4f} to {limits[1]:.4f})"
    guess = guess_figures(results, results.score).get(column)
    if guess is not None:
        text += f"; {guess_name(results)} has {guess:.4f}"
    yield Finding(text)


def _leaves_clients_out(results: StudyTables) -> bool:
    """Whether every test is one client's rows."""
    datasets = results.data.datasets if results.data else ()
    return bool(datasets) and all(dataset.left_out is not None for dataset in datasets)


def _best_method(results: StudyTables) -> str:
    """The best on average over all clients that are left out."""
    means = results.table().reindex(results.methods).mean(axis=1)
    merits = means.map(results.metric.merit)
    return str(merits.idxmax()) if merits.notna().any() else results.methods[0]


def _runs_of(results: StudyTables, method: str) -> list[str]:
    """The runs of a method with its first seed, one for each client that is left out."""
    runs: dict[str, str] = {}
    for run, name in results.names.items():
        if name == method:
            runs.setdefault(results.column_of(run), run)
    return list(runs.values())


def _left_out(results: StudyTables, method: str) -> Iterator[Finding]:
    """How a method does for clients that it has not seen, one after the other."""
    row: dict[Any, float] = results.table().loc[method].dropna().to_dict()
    if not row:
        return
    mean = sum(row.values()) / len(row)
    low = min(row, key=lambda client: row[client])
    high = max(row, key=lambda client: row[client])
    text = (
        f"for clients that were left out, {method} has {results.score_name} {mean:.4f} on average,"
        f" from {row[low]:.4f} ({low}) to {row[high]:.4f} ({high})"
    )
    guesses = guess_figures(results, results.score)
    if guesses:
        text += f"; {guess_name(results)} has {sum(guesses.values()) / len(guesses):.4f}"
    yield Finding(text)


def _rare(results: StudyTables, runs: list[str]) -> Iterator[Finding]:
    """How many of the positives are found, over the tests of these runs."""
    tested = caught = missed = alarms = 0
    name = None
    for run in runs:
        dataset = results.data.of(run) if results.data else None
        matrix = (results.assessment(run) or {}).get("confusion")
        if dataset is None or dataset.positive is None or not matrix or len(matrix) != 2:
            continue
        name = dataset.positive
        positive = dataset.labels.index(name)
        tested += sum(map(sum, matrix))
        caught += matrix[positive][positive]
        missed += matrix[positive][1 - positive]
        alarms += matrix[1 - positive][positive]
    total = caught + missed
    if not total:
        return
    who = results.names[runs[0]]
    text = (
        f"of {total:,} test rows of {name} {who} finds {caught:,}, and takes {alarms:,} others for"
        f" {name}"
    )
    if caught >= FEW_FOUND * total:
        yield Finding(text)
        return
    advice = "choose a lower threshold when predicting"
    if total < RARE_SHARE * tested:
        advice = f"weigh the classes while training, or {advice}"
    yield Finding(f"{text}; {advice}", is_warning=True)


def _gain(results: StudyTables, runs: list[str]) -> Iterator[Finding]:
    """Whether a method is any better than a guess, by accuracy or R2."""
    name = results.basis
    figures = []
    guesses = []
    for run in runs:
        dataset = results.data.of(run) if results.data else None
        assessment = results.assessment(run)
        figure = assessment["metrics"].get(name) if assessment else None
        guess = dataset.baseline.get(name) if dataset else None
        if figure is None or guess is None:
            return
        figures.append(figure)
        guesses.append(guess)
    figure = sum(figures) / len(figures)
    guess = sum(guesses) / len(guesses)
    if figure - guess > HARDLY * (1 - guess):
        return
    title = METRICS[name].title
    verdict = "below"
    if abs(figure - guess) < SAME:
        verdict = "the same as"
    elif figure > guess:
        verdict = "hardly above"
    yield Finding(
        f"its {title}, {figure:.4f}, is {verdict} that of {guess_name(results)}, {guess:.4f}",
        is_warning=True,
    )


def _calibration(results: StudyTables, runs: list[str]) -> Iterator[Finding]:
    errors = []
    for run in runs:
        curve = (results.assessment(run) or {}).get("calibration", {})
        if curve.get("error") is not None:
            errors.append(curve["error"])
    error = max(errors, default=0.0)
    if error > POOR_CALIBRATION:
        yield Finding(
            f"its probabilities are off by {error:.2f} on average, so do not take them at their"
            " word; see the calibration curve",
            is_warning=True,
        )


def _groups(results: StudyTables, run: str) -> Iterator[Finding]:
    """The gap between the groups of each column."""
    groups = (results.assessment(run) or {}).get("groups", {})
    for column, rows in groups.items():
        gap = group_gap(rows, results.score)
        if gap is None:
            continue
        low, high = gap
        yield Finding(
            f"by {column}, {results.score_name} goes from {low[results.score]:.4f}"
            f" ({low['group']}, {low['rows']:,} rows) to {high[results.score]:.4f}"
            f" ({high['group']}, {high['rows']:,} rows)"
        )


def group_gap(
    rows: list[dict[str, Any]], metric: str
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The groups with the lowest and the highest figure, of those with enough rows."""
    telling = [row for row in rows if _is_telling(row) and row.get(metric) is not None]
    if len(telling) < 2:
        return None
    in_order = sorted(telling, key=lambda row: float(row[metric]))
    return in_order[0], in_order[-1]


def _is_telling(group: Mapping[str, Any]) -> bool:
    """Whether a group has rows enough for its figure to say something."""
    if "positives" not in group:
        return bool(group["rows"] >= LEAST_ROWS)
    negatives = group["rows"] - group["positives"]
    return bool(min(group["positives"], negatives) >= LEAST_OF_CLASS)


def _against_reference(results: StudyTables, best: str) -> Iterator[Finding]:
    """What keeping the data apart costs."""
    lead = behind_reference(results, results.names[best], results.column_of(best))
    if lead is None or lead.limits is None:
        return
    low, high = lead.limits
    verdict = "larger than chance" if lead.is_real else "may be chance"
    side = "ahead of" if lead.by > 0 else "behind"
    if lead.by < 0:
        low, high = -high, -low
    yield Finding(
        f"all data in one place would be {side} it by {abs(lead.by):.4f}"
        f" (95 % interval {low:.4f} to {high:.4f}): {verdict}"
    )


def _comparisons(results: StudyTables) -> Iterator[Finding]:
    """How many methods are behind by more than chance."""
    pairs = leads(results)
    if not pairs:
        return
    real = sum(pair.is_real for pair in pairs)
    source = "seeds and draws of the test rows" if results.seeds > 1 else "draws of the test rows"
    if len(pairs) == 1:
        yield Finding(pairs[0].text if pairs[0].by == 0 else f"{pairs[0].text}, by {source}")
        return
    count = "none is" if real == 0 else "1 is" if real == 1 else f"{real} are"
    yield Finding(
        f"of {len(pairs)} differences to the best of a column, {count} larger than chance, by"
        f" {source}"
    )
