"""The results of a study: its tables, its models, its pictures and its report."""

from __future__ import annotations

import html
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from tacit.core.errors import StudyError
from tacit.report.assessment_tables import group_frame, importance_frame
from tacit.report.figures import draw_figure, write_figures
from tacit.report.findings import find
from tacit.report.metric_frame import metric_frame
from tacit.report.page import write_page
from tacit.report.pictures import Picture
from tacit.report.predictions import NewRows, predict
from tacit.report.study_tables import StudyTables
from tacit.report.trained_models import load_model
from tacit.report.uncertainty import leads


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
        self,
        run: str,
        rows: NewRows,
        *,
        client: int | str | None = None,
        proba: bool = False,
        threshold: float | None = None,
    ) -> Any:
        """What this run's model says of new rows: labels as in the table, or numbers in its units.

        The rows are a data frame, a table's file, or an array with the training array's columns;
        they are encoded as the training rows were. The result is a Series. With `proba` it is a
        data frame with the probability of every class. With a `threshold`, the positive one of two
        classes is predicted from this probability on.
        """
        predictions = predict(self, run, rows, client)
        if not proba:
            return predictions.values(threshold)
        if threshold is not None:
            raise StudyError(
                "a threshold is for labels, and proba asks for probabilities; leave one out",
                parameters=("threshold", "proba"),
            )
        return predictions.probabilities()

    def findings(self) -> list[str]:
        """What to take away first, in sentences; they stand on top of the report too."""
        return [finding.text for finding in find(self)]

    def all_metrics(self) -> pd.DataFrame:
        """Every metric after the last round, and what a model that has learnt nothing reaches."""
        return metric_frame(self)

    def differences(self) -> pd.DataFrame:
        """The best of each column against the others: by how much, and whether by chance."""
        return pd.DataFrame([asdict(lead) for lead in leads(self)])

    def groups(self, run: str, column: str) -> pd.DataFrame:
        """Every metric for the groups of a column, such as sex: a row for each on the test set,
        and one for each client on its own test.
        """
        return group_frame(self, run, column)

    def importance(self, run: str) -> pd.DataFrame:
        """How much worse the metric becomes where a column is shuffled: a row per column for all,
        and for each client.
        """
        return importance_frame(self, run)

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
        findings = "".join(f"<li>{html.escape(text)}</li>" for text in self.findings())
        return (
            f"<p><b>{question}</b></p>{table}<ul>{findings}</ul>"
            f"<p>{description}; report: <code>{path}</code></p>"
        )
