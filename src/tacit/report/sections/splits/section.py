"""Who holds what: labels and sizes per client, and how a table's columns became numbers."""

from __future__ import annotations

from typing import Any

from tacit.report.section import Drawings, Section
from tacit.report.split_pictures import draw_portraits
from tacit.report.study_tables import StudyTables


class SplitsSection(Section):
    title = "Who holds what"
    order = 60

    def contents(self, results: StudyTables) -> dict[str, Any]:
        encoding = results.encoding
        return {"encoding": encoding.describe() if encoding else []}

    def chart_data(self, results: StudyTables) -> list[dict[str, Any]]:
        return [portrait.to_dict() for portrait in results.portraits]

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.portraits:
            return {}
        return {"splits": lambda: draw_portraits(results.portraits)}
