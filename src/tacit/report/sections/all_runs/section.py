"""All runs, one row each."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tacit.report.section import Section
from tacit.report.study_tables import StudyTables


class AllRunsSection(Section):
    title = "All runs"
    order = 80

    def contents(self, results: StudyTables) -> dict[str, Any]:
        return {"summary": write_cells(results.summary().drop(columns=["loss"], errors="ignore"))}


def write_cells(table: pd.DataFrame) -> dict[str, Any]:
    """A table's headings and cells as texts."""
    rows = []
    for row in table.astype(object).itertuples(index=False):
        rows.append([_write(value) for value in row])
    return {"columns": [str(name).replace("_", " ") for name in table.columns], "rows": rows}


def _write(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
