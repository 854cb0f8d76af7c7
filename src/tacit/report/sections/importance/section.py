"""Importance: how much worse models become where a column is shuffled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.section import Drawings, Section
from tacit.report.sections.importance.pictures import draw_importance
from tacit.report.study_tables import StudyTables

MOST_COLUMNS = 30  # of a table on the page
MOST_CLIENTS = 30


class ImportanceSection(Section):
    title = "Columns that matter"
    order = 55

    def is_shown(self, results: StudyTables) -> bool:
        return bool(importance_by_method(results))

    def contents(self, results: StudyTables) -> dict[str, Any]:
        by_method = importance_by_method(results)
        best = results.best_if_any()
        by_client = {} if best is None else _by_client(results, best)
        columns = _most_important(by_method)
        return {
            "methods": _table(by_method, columns),
            "clients": _table(by_client, columns) if by_client else None,
            "best": "" if best is None else f"{results.names[best]}, {results.column_of(best)}",
            "left_out": max(0, len(next(iter(by_method.values()))) - MOST_COLUMNS),
        }

    def drawings(self, results: StudyTables) -> Drawings:
        by_method = importance_by_method(results)
        if not by_method:
            return {}
        columns = _most_important(by_method)
        label = f"drop in {results.score_name}"
        return {"importance": lambda: draw_importance(by_method, columns, label)}


def importance_by_method(results: StudyTables) -> dict[str, dict[str, float]]:
    """Method -> column -> the mean drop over its runs."""
    drops: dict[str, dict[str, list[float]]] = {}
    for run in results.labels:
        assessment = results.assessment(run)
        if assessment is None:
            continue
        for row in assessment["importance"]:
            if row["drop"] is not None:
                by_column = drops.setdefault(results.names[run], {})
                by_column.setdefault(row["column"], []).append(row["drop"])
    means = {}
    for method, by_column in drops.items():
        means[method] = {name: sum(values) / len(values) for name, values in by_column.items()}
    return means


def _by_client(results: StudyTables, run: str) -> dict[str, dict[str, float]]:
    """The same for the clients of one run, on their own tests."""
    names = results.client_names(run)
    by_client = {}
    for client in (results.assessment(run) or {}).get("clients", [])[:MOST_CLIENTS]:
        drops = {row["column"]: row["drop"] for row in client["importance"]}
        measured = {column: drop for column, drop in drops.items() if drop is not None}
        if measured:
            by_client[names[client["client"]]] = measured
    return by_client


def _most_important(by_method: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The columns, those with the largest drop of any method first."""
    largest: dict[str, float] = {}
    for drops in by_method.values():
        for column, drop in drops.items():
            largest[column] = max(drop, largest.get(column, drop))
    in_order = sorted(largest, key=lambda column: -largest[column])
    return in_order[:MOST_COLUMNS]


def _table(by_name: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> dict[str, Any]:
    """A row per column of the data, and a cell per method or client."""
    values = [drop for drops in by_name.values() for drop in drops.values()]
    largest = max([*values, 1e-9])
    rows = []
    for column in columns:
        cells = []
        for name in by_name:
            drop = by_name[name].get(column)
            text = "" if drop is None else f"{drop:.4f}"
            cells.append({"text": text, "shade": max(0.0, drop or 0.0) / largest})
        rows.append({"column": column, "cells": cells})
    return {"names": list(by_name), "rows": rows}
