"""How well groups such as women and men are served: a table for each column of the data."""

from __future__ import annotations

from typing import Any

from tacit.report.findings import LEAST_OF_CLASS, LEAST_ROWS, group_gap
from tacit.report.metric_texts import title_of
from tacit.report.study_tables import StudyTables

MOST_CLIENTS = 30


def group_tables(results: StudyTables) -> list[dict[str, Any]]:
    """For each column, the groups of the best run with all metrics, and clients by groups."""
    best = results.best_if_any()
    assessment = None if best is None else results.assessment(best)
    if best is None or assessment is None:
        return []
    runs = [run for run in results.labels if results.assessment(run)]
    tables = []
    for column, rows in assessment["groups"].items():
        tables.append(
            {
                "column": column,
                "run": f"{results.names[best]}, {results.column_of(best)}",
                "metrics": {name: title_of(name) for name in results.measured},
                "rows": rows,
                "gaps": _gaps(results, runs, column),
                "clients": _by_client(results, best, column),
                "least": LEAST_ROWS,
                "least_of_class": LEAST_OF_CLASS,
            }
        )
    return tables


def _gaps(results: StudyTables, runs: list[str], column: str) -> list[dict[str, Any]]:
    """For each run, the groups that it serves worst and best."""
    gaps = []
    for run in runs:
        assessment = results.assessment(run) or {}
        gap = group_gap(assessment["groups"].get(column, []), results.score)
        if gap is not None:
            low, high = gap
            gaps.append(
                {
                    "method": results.names[run],
                    "split": results.column_of(run),
                    "seed": results.outline.runs[run].seed,
                    "low": low,
                    "high": high,
                    "gap": high[results.score] - low[results.score],
                }
            )
    return gaps


def _by_client(results: StudyTables, run: str, column: str) -> dict[str, Any]:
    """The figure that decides, for each client and group, on the client's own test."""
    names = results.client_names(run)
    clients = (results.assessment(run) or {}).get("clients", [])[:MOST_CLIENTS]
    groups: dict[str, None] = {}
    for client in clients:
        groups |= dict.fromkeys(row["group"] for row in client["groups"].get(column, []))
    rows = []
    for client in clients:
        by_group = {row["group"]: row for row in client["groups"].get(column, [])}
        cells = [by_group.get(group) for group in groups]
        rows.append({"client": names[client["client"]], "cells": cells})
    return {"groups": list(groups), "rows": rows}
