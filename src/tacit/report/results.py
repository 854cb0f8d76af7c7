"""The results of a study: its tables, its models, its pictures and its report."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray
from torch import nn

from tacit.report.figures import draw_figure, write_figures
from tacit.report.page import write_page
from tacit.report.pictures import Picture
from tacit.report.study_tables import StudyTables
from tacit.report.trained_models import load_model, predict


class Results(StudyTables):
    """The results of a study, finished or not, read from its folder."""

    def model(
        self, run: str, data: str | None = None, *, client: int | str | None = None
    ) -> nn.Module:
        """The global model that this run ended with, or that of a client.

        A client is its number, or its name where it has one. It has a model of its own where the
        method gives it one.
        """
        return load_model(self, run, client, data)

    def predict(
        self, run: str, frame: pd.DataFrame | NDArray[Any], *, client: int | str | None = None
    ) -> pd.Series[Any]:
        """What this run's model says of new rows: labels as in the table, or numbers in its units.

        The rows are encoded as the training rows were. The table itself is not needed. An array
        has the training array's columns.
        """
        return predict(self, run, frame, client)

    def write_report(self) -> Path:
        """Writes the page, the tables and the pictures, also of a study that is still running."""
        self.write_tables()
        write_page(self)
        write_figures(self)
        return self.report

    def plot(self, kind: str | None = None) -> Picture:
        """A picture for a notebook or a file: the score, loss, cost, clients, comparison or splits.

        The score is drawn unless a kind is given. Where networks were fused there are also fusion,
        widths and matching.
        """
        return draw_figure(self, kind)

    def _repr_html_(self) -> str:
        """In a notebook: the question, the comparison, and where the report is."""
        question = html.escape(self.outline.question)
        path = html.escape(str(self.report))
        table = ""
        if self.records:
            table = self.table().to_html(float_format="{:.4f}".format, na_rep="")
        description = html.escape(repr(self))
        return f"<p><b>{question}</b></p>{table}<p>{description}; report: <code>{path}</code></p>"
