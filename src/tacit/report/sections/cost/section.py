"""Cost: what a run sends and how long it computes, against the score that it reaches."""

from __future__ import annotations

import math
from typing import Any

from tacit.report.line_panels import name_rows
from tacit.report.section import Drawings, Section
from tacit.report.sections.cost.pictures import draw_cost
from tacit.report.study_tables import StudyTables


class CostSection(Section):
    title = "Cost"
    order = 70

    def contents(self, results: StudyTables) -> dict[str, Any]:
        return {"costs": method_costs(results)}

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.records:
            return {}
        rounds = name_rows(results, results.frame())
        label = f"global test {results.score_name}"
        return {"cost": lambda: draw_cost(rounds, results.score, ylabel=label)}


def method_costs(results: StudyTables) -> list[dict[str, str]]:
    """A row per method: what a run of it costs, on average."""
    summary = results.summary()
    if summary.empty:
        return []
    score_per_mb = f"{results.score}_per_mb"
    columns = ["round", "bytes_up", "bytes_down", score_per_mb, "seconds"]
    summary = summary.assign(method=summary["run"].map(results.names))
    means = summary.groupby("method", sort=False)[columns].mean()
    rows = []
    for method, costs in means.iterrows():
        per_mb = costs[score_per_mb]
        milliseconds = 1000 * costs["seconds"] / costs["round"]
        row = {
            "method": str(method),
            "rounds": f"{costs['round']:,.4g}",
            "up": f"{costs['bytes_up'] / 1e6:,.3g}",
            "down": f"{costs['bytes_down'] / 1e6:,.3g}",
            "per_mb": "" if math.isnan(per_mb) else f"{per_mb:.3g}",
            "seconds": f"{costs['seconds']:,.3g}",
            "each": f"{milliseconds:,.3g}",
        }
        rows.append(row)
    return rows
