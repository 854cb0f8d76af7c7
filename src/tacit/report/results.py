"""The results of a study: its tables, its pictures and its report."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.report.tables import Tables

if TYPE_CHECKING:
    from tacit.report.pictures import Picture


class Results(Tables):
    """The results of a study, finished or not, read from its folder."""

    def write_report(self) -> Path:
        """Writes the page, the tables and the pictures into the folder, also of a study that is still going."""
        from tacit.report.html import write_page
        from tacit.report.plots import write_figures

        self.write_tables()
        write_page(self)
        write_figures(self)
        return self.report

    def plot(self, kind: str | None = None) -> Picture:
        """A picture for a notebook or a file: the score (by default), loss, cost, clients, comparison or splits.

        Where networks were fused also: fusion, widths and matching.
        """
        from tacit.report.plots import plot

        return plot(self, kind)

    def _repr_html_(self) -> str:
        """In a notebook: the question, the comparison, and where the report is."""
        question, place = html.escape(self.study.question()), html.escape(str(self.report))
        table = (
            self.table().to_html(float_format="{:.4f}".format, na_rep="") if self.records else ""
        )
        return f"<p><b>{question}</b></p>{table}<p>{html.escape(repr(self))}; report: <code>{place}</code></p>"
