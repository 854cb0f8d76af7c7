"""What fusions are compared with, as rows of the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pandas as pd

from tacit.records.outline import StudyOutline
from tacit.study.run_names import row_names

BASELINES = {"alone": "local networks", "average": "naive average", "ensemble": "ensemble"}


class NamedRuns(Protocol):
    """A study's runs by their ids, and how they are named."""

    outline: StudyOutline
    labels: dict[str, dict[str, Any]]

    @property
    def score(self) -> str:
        """What models are judged by."""

    @property
    def names(self) -> Mapping[str, str]:
        """What each is called in a table."""


def with_baselines(results: NamedRuns, summary: pd.DataFrame) -> pd.DataFrame:
    """The summary of runs, with lines for what their fusions are compared with.

    In one shot, fusions that differ in nothing else have the same networks, and one line for all of
    them; after several rounds each has its own. `baseline` is which of BASELINES a line is, and
    empty where it is a run's own.
    """
    tables = [summary.assign(baseline="")]
    for baseline in BASELINES:
        column = f"{baseline}_{results.score}"
        if column in summary and summary[column].notna().any():
            tables.append(_baseline_lines(results, summary, baseline))
    table = pd.concat(tables, ignore_index=True)
    order = _line_order(results, table)
    return table.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def _baseline_lines(results: NamedRuns, summary: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """One line for each set of networks that this baseline was measured on."""
    titles = _titles(results, BASELINES[baseline])
    lines = summary[summary["run"].isin(titles)]
    lines = lines.assign(method=lines["run"].map(titles), baseline=baseline)
    lines[results.score] = lines[f"{baseline}_{results.score}"]
    sound_first = lines.sort_values(
        "status", key=lambda status: status == "diverged", kind="stable"
    )
    networks = sound_first["run"].map(lambda run: _networks(results, run))
    return sound_first[~networks.duplicated()].sort_index()


def _line_order(results: NamedRuns, table: pd.DataFrame) -> pd.Series[int]:
    """After several rounds a method's baselines stand below it, in one shot below all methods."""
    methods = list(dict.fromkeys(results.names.values()))
    ranks = []
    for run, baseline in zip(table["run"], table["baseline"], strict=True):
        is_shared = bool(baseline) and results.outline.runs[run].rounds == 1
        ranks.append(len(methods) if is_shared else methods.index(results.names[run]))
    return pd.Series(ranks)


def _titles(results: NamedRuns, title: str) -> dict[str, str]:
    """What the baseline of every run with a fusion is called.

    After several rounds that includes the method that led there.
    """
    with_fusion = [id for id, run in results.outline.runs.items() if run.shared_work]
    baseline_labels = []
    for run in with_fusion:
        label = results.labels[run]
        name = title
        if results.outline.runs[run].rounds > 1:
            name = f"{label['algorithm']}: {title}"
        baseline_labels.append({**label, "algorithm": name})
    run_labels = list(results.labels.values())
    names = row_names([*run_labels, *baseline_labels])  # named together, so that they differ
    return dict(zip(with_fusion, names[len(run_labels) :], strict=True))


def _networks(results: NamedRuns, run: str) -> str:
    """Tells which networks a run's clients have trained."""
    outline = results.outline.runs[run]
    shared = outline.shared_work if outline.rounds == 1 else None
    return shared or run
