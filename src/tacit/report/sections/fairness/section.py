"""Fairness: how far clients are apart, and the one that is served worst."""

from __future__ import annotations

from typing import Any

from tacit.report.heat_table import heat_table
from tacit.report.section import Section
from tacit.report.sections.fairness.groups import group_tables
from tacit.report.study_tables import StudyTables

TITLES = {"worst": "The worst served client", "spread": "Spread over clients"}


class FairnessSection(Section):
    title = "Fairness"
    order = 50

    def contents(self, results: StudyTables) -> dict[str, Any]:
        federated = [run for run in results.outline.runs.values() if not run.is_reference]
        metrics: list[str] = []
        if any(run.clients > 1 for run in federated):
            metrics = [metric for metric in TITLES if metric in results.summary()]
        tables = [heat_table(results, metric, TITLES[metric]) for metric in metrics]
        return {"tables": tables, "groups": group_tables(results)}
