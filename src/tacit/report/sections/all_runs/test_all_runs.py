"""The table of all runs: its headings, and its cells as they are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from stored import history_of, with_history

import tacit
from tacit.report.page import render
from tacit.report.sections.all_runs.section import write_cells

CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>")


def table_on_page(results: tacit.Results) -> pd.DataFrame:
    """The table as it stands on the page; all cells are texts."""
    page = render(results)
    details = page[page.index('<details id="all-runs">') :]
    table = details[: details.index("</table>")]
    headings, *rows = [CELL.findall(row) for row in table.split("<tr>")[1:]]
    return pd.DataFrame(rows, columns=headings).set_index("run")


def test_every_run_has_a_row_and_every_figure_but_the_loss_a_column(
    results: tacit.Results,
) -> None:
    table = table_on_page(results)
    summary = results.summary().set_index("run").drop(columns="loss")
    assert list(table.index) == list(results.runs)
    assert list(table.columns) == [str(name).replace("_", " ") for name in summary]
    assert {"best accuracy", "bytes up", "accuracy per mb"} <= set(table.columns)


def test_the_numbers_are_those_of_the_summary(results: tacit.Results) -> None:
    table = table_on_page(results)
    summary = results.summary().set_index("run")
    for name in results.metrics:
        if name in ("loss", "updated"):  # no column, and no number
            continue
        cells = table[name.replace("_", " ")].str.replace(",", "").replace("", "nan")
        shown = cells.astype(float).tolist()
        expected = summary[name].astype(float).tolist()
        assert shown == pytest.approx(expected, rel=1e-3, nan_ok=True), name


def test_settings_and_statuses_are_shown_as_they_are(
    results: tacit.Results, tmp_path: Path
) -> None:
    diverged, going, *_ = results.runs
    records = []
    for record in history_of(results):
        if record["run"] == diverged and record["round"] == 4:
            record |= {"accuracy": None, "loss": None, "status": "diverged"}
        if record["run"] == going and record["round"] == 4:
            continue
        records.append(record)
    table = table_on_page(with_history(results, tmp_path, records))
    for setting in ("split", "algorithm", "seed"):
        expected = [str(label[setting]) for label in results.labels.values()]
        assert table[setting].tolist() == expected
    assert table["status"].tolist() == ["diverged", "running"] + ["finished"] * 12
    assert table["round"].tolist() == ["4", "3"] + ["4"] * 12
    assert table.loc[diverged, "accuracy"] == ""
    assert table.loc[diverged, "best accuracy"] != ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (1234.5678, "1235"),
        (0.5, "0.5"),
        (0.0, "0"),
        (float("nan"), ""),
        (0, "0"),
        (999, "999"),
        (1000, "1,000"),
        (1234567, "1,234,567"),
        (True, "True"),
        ("label_dirichlet", "label_dirichlet"),
    ],
)
def test_a_cell_is_written_for_a_reader(value: Any, text: str) -> None:
    assert write_cells(pd.DataFrame({"x": [value]}))["rows"] == [[text]]


def test_columns_of_different_types_keep_their_own_ways_of_writing() -> None:
    table = pd.DataFrame({"bytes_up": [12000, 5], "best_score": [0.25, float("nan")]})
    cells = write_cells(table)
    assert cells["columns"] == ["bytes up", "best score"]
    assert cells["rows"] == [["12,000", "0.25"], ["5", ""]]
