"""Fusion: scores beside their baselines, widths, and which of the clients' neurons became one."""

from __future__ import annotations

from typing import Any

from tacit.report.neuron_sharing import MOST_NEURONS
from tacit.report.section import Drawings, Section
from tacit.report.sections.fusion.fusion_data import (
    assigned_layers,
    last_fusions,
    score_rows,
    width_rows,
)
from tacit.report.sections.fusion.pictures import draw_run, draw_scores, draw_widths
from tacit.report.study_tables import StudyTables


class FusionSection(Section):
    title = "Fusion"
    order = 30

    def is_shown(self, results: StudyTables) -> bool:
        return any(run.kind == "fusion" for run in results.outline.runs.values())

    def contents(self, results: StudyTables) -> dict[str, Any]:
        return {"widths": write_widths(results)}

    def chart_data(self, results: StudyTables) -> dict[str, Any]:
        matchings = []
        for run, record in last_fusions(results).items():
            matchings.append(assigned_layers(results, run, record))
        return {
            "scores": score_rows(results),
            "widths": width_rows(results),
            "matchings": matchings,
            "most": MOST_NEURONS,
        }

    def drawings(self, results: StudyTables) -> Drawings:
        """The matching is that of the first run that has ended."""
        fusions = last_fusions(results)
        if not fusions:
            return {}
        drawings: Drawings = {"widths": lambda: draw_widths(width_rows(results))}
        rows = score_rows(results)
        if rows:
            label = f"global test {results.score_name}"
            drawings["fusion"] = lambda: draw_scores(rows, label)
        ended = [run for run, record in fusions.items() if "assignment" in record["fusion"]]
        if ended:
            fusion = fusions[ended[0]]["fusion"]
            drawings["matching"] = lambda: draw_run(results, ended[0], fusion)
        return drawings


def write_widths(results: StudyTables) -> dict[str, list[dict[str, str]]]:
    """For each split a row per fusion, as texts: widths and the time of matching.

    They are means over the seeds; the widths of several layers stand beside each other.
    """
    by_split: dict[str, list[dict[str, str]]] = {}
    for row in width_rows(results):
        texts = {"method": row["method"], "time": f"{row['seconds']:,.3g}"}
        for kind in ("fused", "local", "widest"):
            texts[kind] = ", ".join(f"{layer[kind]:,.5g}" for layer in row["layers"])
        by_split.setdefault(row["split"], []).append(texts)
    return by_split
