"""What fusions are compared with, as rows of the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pandas as pd

from tacit.study.run import Run
from tacit.study.run_names import row_names

BASELINES = {"alone": "local networks", "average": "naive average", "ensemble": "ensemble"}


class Compared(Protocol):
    """What is told of a study's runs, by their ids."""

    labels: dict[str, dict[str, Any]]

    @property
    def score(self) -> str:
        """What models are judged by."""

    @property
    def runs(self) -> Mapping[str, Run]:
        """The runs."""

    @property
    def names(self) -> Mapping[str, str]:
        """What each is called in a table."""


def with_baselines(results: Compared, summary: pd.DataFrame) -> pd.DataFrame:
    """The summary of runs, with lines for what their fusions are compared with.

    In one shot, fusions that differ in nothing else have the same networks, and a line for all; after several rounds
    each has its own. `baseline` is which of BASELINES a line is, and empty where it is a run's own.
    """
    score, found = results.score, [summary.assign(baseline="")]
    for name, title in BASELINES.items():
        if f"{name}_{score}" not in summary or summary[f"{name}_{score}"].isna().all():
            continue
        titles = _titles(results, title)
        lines = summary[summary["run"].isin(titles)]
        lines = lines.assign(
            method=lines["run"].map(titles), baseline=name, **{score: lines[f"{name}_{score}"]}
        )
        lines = lines.sort_values(
            "status", key=lambda status: status == "diverged", kind="stable"
        )  # sound ones first
        found.append(
            lines[~lines["run"].map(lambda run: _networks(results, run)).duplicated()].sort_index()
        )
    table = pd.concat(found, ignore_index=True)
    methods = list(dict.fromkeys(results.names.values()))
    place = [
        methods.index(results.names[run])
        if not kind or results.runs[run].rounds > 1
        else len(methods)
        for run, kind in zip(table["run"], table["baseline"], strict=True)
    ]  # after several rounds, a method's baselines stand below it
    return table.iloc[pd.Series(place).argsort(kind="stable")].reset_index(drop=True)


def _titles(results: Compared, title: str) -> dict[str, str]:
    """What the baseline of every run with a fusion is called: after several rounds with the method that led there."""
    fused = [run for run, about in results.runs.items() if about.shared_work()]
    labels = [results.labels[run] for run in fused]
    named = [
        {
            **label,
            "algorithm": title
            if results.runs[run].rounds == 1
            else f"{label['algorithm']}: {title}",
        }
        for run, label in zip(fused, labels, strict=True)
    ]
    names = row_names(
        [*results.labels.values(), *named]
    )  # beside the others, so that they are told apart
    return dict(zip(fused, names[len(results.labels) :], strict=True))


def _networks(results: Compared, run: str) -> str:
    """Tells which networks a run's clients have trained."""
    about = results.runs[run]
    shared = about.shared_work() if about.rounds == 1 else None
    return shared or run
