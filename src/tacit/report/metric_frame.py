"""All metrics side by side, and those of a model that has learnt nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tacit.report.study_tables import StudyTables, is_reference
from tacit.report.uncertainty import mean_of


def guess_figures(results: StudyTables, metric: str) -> dict[str, float]:
    """What a model that has learnt nothing reaches, by column."""
    by_column: dict[str, list[float]] = {}
    for run in results.labels:
        dataset = results.data.of(run) if results.data else None
        figure = dataset.baseline.get(metric) if dataset else None
        if figure is not None and not results.outline.runs[run].is_reference:
            by_column.setdefault(results.column_of(run), []).append(figure)
    return {column: mean_of(figures) for column, figures in by_column.items()}


def guess_name(results: StudyTables) -> str:
    """What such a model does: `always alive`."""
    guesses = {dataset.guess for dataset in results.data.datasets} if results.data else set()
    if len(guesses) == 1:
        return f"always {guesses.pop()}"
    return "always the mean" if results.basis == "r2" else "always the most frequent class"


def metric_frame(results: StudyTables) -> pd.DataFrame:
    """All metrics after the last round: a row per method and column, and one of a mere guess.

    They are means over the seeds.
    """
    names = results.measured
    if not names:
        return pd.DataFrame()
    rows: dict[str, Mapping[str, float]] = {}
    tables = {name: results.table(name) for name in names}
    for label, (method, column) in metric_rows(results).items():
        rows[label] = {name: _figure(tables[name], method, column) for name in names}
    guesses = {name: mean_of(list(guess_figures(results, name).values())) for name in names}
    if not all(math.isnan(figure) for figure in guesses.values()):
        rows[guess_name(results)] = guesses
    return pd.DataFrame.from_dict(rows, orient="index", columns=names)


def metric_rows(results: StudyTables) -> dict[str, tuple[str, str]]:
    """What the rows are called -> their method and column."""
    rows: dict[str, tuple[str, str]] = {}
    if not results.measured:
        return rows
    tables = [results.table(name) for name in results.measured]
    several = len(results.column_names) > 1
    for method in [*results.methods, *results.references]:
        if method not in tables[0].index:
            continue
        filled = []
        for column in tables[0].columns:
            if any(not math.isnan(_figure(table, method, column)) for table in tables):
                filled.append(str(column))
        for column in filled:
            is_only_one = len(filled) == 1 and is_reference(method)
            label = f"{method}, {column}" if several and not is_only_one else method
            rows[label] = (method, column)
    return rows


def _figure(table: pd.DataFrame, method: str, column: str) -> float:
    figure: Any = table.loc[method, column]
    return float(figure)
