"""Run it again: the study's file, and what it ran with."""

from __future__ import annotations

from typing import Any

from tacit.report.section import Section
from tacit.report.study_tables import StudyTables


class RunAgainSection(Section):
    title = "Run it again"
    order = 90

    def contents(self, results: StudyTables) -> dict[str, Any]:
        study = (results.folder / "study.yaml").read_text(encoding="utf-8")
        return {"study": study, "environment": results.environment}
