"""What was found out about a run's last model, as tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tacit.core.errors import StudyError, suggest
from tacit.report.study_tables import StudyTables

EVERYBODY = "all"  # in place of a client: the global test set


def group_frame(tables: StudyTables, run: str, column: str) -> pd.DataFrame:
    """A row per group of this column, on the test set and on each client's own test."""
    assessment = _required(tables, run)
    if not isinstance(column, str) or column not in assessment["groups"]:
        columns = list(assessment["groups"])
        if not columns:
            raise StudyError(
                f"{run} has no groups; name columns, such as dataset: {{name: table, ...,"
                " fairness: [sex, age]}"
            )
        raise StudyError(f"{run} has no groups by {column!r}; {suggest(str(column), columns)}")
    rows = [{"client": EVERYBODY, **row} for row in assessment["groups"][column]]
    names = tables.client_names(run)
    for client in assessment["clients"]:
        name = names[client["client"]]
        rows += [{"client": name, **row} for row in client["groups"].get(column, [])]
    return pd.DataFrame(rows)


def importance_frame(tables: StudyTables, run: str) -> pd.DataFrame:
    """A row per column of the data, for all and for each client; the largest drop first."""
    assessment = _required(tables, run)
    rows = [{"client": EVERYBODY, **row} for row in _by_drop(assessment["importance"])]
    names = tables.client_names(run)
    for client in assessment["clients"]:
        name = names[client["client"]]
        rows += [{"client": name, **row} for row in _by_drop(client["importance"])]
    return pd.DataFrame(rows, columns=["client", "column", "drop", "deviation"])


def _by_drop(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = [row for row in rows if row["drop"] is not None]
    return sorted(measured, key=lambda row: -float(row["drop"]))


def _required(tables: StudyTables, run: str) -> dict[str, Any]:
    assessment = tables.assessment(run)
    if assessment is None:
        raise StudyError(f"{run} has not been assessed: it has not finished, or it has diverged")
    return assessment
