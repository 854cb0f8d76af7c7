"""Each client's own metrics, round by round."""

from __future__ import annotations

from tacit.report.line_panels import name_rows
from tacit.report.section import Drawings, Section
from tacit.report.sections.clients.pictures import draw_clients
from tacit.report.study_tables import StudyTables


class ClientsSection(Section):
    title = "Clients"
    order = 40

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.records:
            return {}
        clients = name_rows(results, results.client_frame())
        clients["crowd"] = clients["run"].map(results.is_crowd)
        return {"clients": lambda: draw_clients(clients, results.score)}
