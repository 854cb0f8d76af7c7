"""The comparison: a table per metric, methods against splits, with the best in bold."""

from __future__ import annotations

from typing import Any

from tacit.report.heat_table import heat_table
from tacit.report.section import Drawings, Section
from tacit.report.sections.comparison.pictures import draw_comparison
from tacit.report.study_tables import StudyTables


class ComparisonSection(Section):
    title = "Comparison"
    order = 10

    def contents(self, results: StudyTables) -> dict[str, Any]:
        tables = [heat_table(results, metric, title) for metric, title in _titles(results)]
        return {"tables": tables, "waiting": _waiting_methods(results)}

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.records:
            return {}
        label = f"global test {results.score_name}"
        return {"comparison": lambda: draw_comparison(results.table(), label)}


def _titles(results: StudyTables) -> list[tuple[str, str]]:
    """Metrics and the titles of their tables; the best of all rounds comes second."""
    titles = list(results.titles.items())
    if titles:
        best = (f"best_{results.score}", f"Best {results.score_name} of any round")
        titles.insert(1, best)
    return titles


def _waiting_methods(results: StudyTables) -> list[str]:
    """Methods of which no run has begun."""
    begun = {results.names[record["run"]] for record in results.records}
    methods = dict.fromkeys(results.names.values())
    return [method for method in methods if method not in begun]
