"""Each client's own metrics, round by round."""

from __future__ import annotations

from typing import Any

from tacit.core.errors import StudyError
from tacit.report.line_panels import name_rows
from tacit.report.metric_texts import title_of
from tacit.report.section import Drawings, Section
from tacit.report.sections.clients.pictures import draw_clients
from tacit.report.study_tables import StudyTables

MOST_CLIENTS = 100


class ClientsSection(Section):
    title = "Clients"
    order = 40

    def contents(self, results: StudyTables) -> dict[str, Any]:
        return {"tests": client_tests(results)}

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.records:
            return {}
        clients = name_rows(results, results.client_frame())
        clients["crowd"] = clients["run"].map(results.is_crowd)
        return {"clients": lambda: draw_clients(clients, results.score)}


def client_tests(results: StudyTables) -> dict[str, Any] | None:
    """Every metric on each client's own test, with the best run; None before it has ended."""
    try:
        best = results.best() if results.records else ""
    except StudyError:  # all have diverged
        return None
    assessment = results.assessment(best) if best else None
    if not assessment or not assessment["clients"]:
        return None
    names = results.client_names(best)
    rows = []
    for client in assessment["clients"][:MOST_CLIENTS]:
        figures = [client["metrics"].get(name) for name in results.measured]
        cells = ["" if figure is None else f"{figure:.4f}" for figure in figures]
        rows.append({"name": names[client["client"]], "rows": client["rows"], "cells": cells})
    return {
        "run": f"{results.names[best]}, {results.column_of(best)}",
        "titles": [title_of(name) for name in results.measured],
        "rows": rows,
    }
