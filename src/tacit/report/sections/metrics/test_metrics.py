"""All metrics side by side, with their intervals."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from patients import ILL, a_study_of, days_in_hospital
from stored import a_copy, contents_of, section_of

import tacit
from tacit.report.page import render


def test_a_cell_is_the_assessments_figure_with_its_interval(screening: tacit.Results) -> None:
    contents = contents_of("metrics", screening)
    rows = {row["name"]: row for row in contents["rows"]}
    for run in screening.labels:
        assessment = screening.assessment(run)
        assert assessment is not None
        cell = (screening.names[run], screening.column_of(run))
        row = rows[f"{cell[0]}, {cell[1]}"]
        assert row["place"] == cell
        for name, shown in zip(screening.measured, row["cells"], strict=True):
            if not shown["text"]:  # nobody was taken for ill
                assert assessment["metrics"][name] is None
                continue
            low, high = assessment["bootstrap"]["intervals"][name]
            assert abs(float(shown["text"]) - assessment["metrics"][name]) < 1e-4
            assert shown["limits"] == f"{low:.3f} to {high:.3f}"
    assert contents["titles"][:2] == ["ROC AUC", "average precision"]
    assert contents["positive"] == ILL


def test_the_guess_is_the_last_row_and_has_no_interval(screening: tacit.Results) -> None:
    last = contents_of("metrics", screening)["rows"][-1]
    assert (last["name"], last["place"]) == ("always well & fit", None)
    assert last["cells"][0] == {"text": "0.5000", "limits": ""}


def test_the_reference_has_an_interval_of_its_own(results: tacit.Results) -> None:
    *_, reference, _ = contents_of("metrics", results)["rows"]
    assert reference["place"] == ("centralised", "all data")
    assert all(cell["limits"] for cell in reference["cells"])


def test_every_difference_is_a_row(screening: tacit.Results) -> None:
    table = screening.differences()
    shown: Any = contents_of("metrics", screening)["leads"]
    assert len(shown) == len(screening.column_names)
    assert [lead.by for lead in shown] == table["by"].tolist()
    assert render(screening).count("no, it may be chance") == (~table["is_real"]).sum()


def test_a_study_without_rounds_has_no_metrics(screening: tacit.Results, tmp_path: Path) -> None:
    waiting = a_copy(screening, tmp_path, lambda _: None)
    assert not section_of("metrics").is_shown(waiting)
    assert waiting.all_metrics().empty
    assert "All metrics" not in render(waiting)


def test_numbers_have_their_own_metrics_and_no_positive_class(tmp_path: Path) -> None:
    settings = a_study_of(days_in_hospital(90), tmp_path / "rows.csv", "days", task="regression")
    contents = contents_of("metrics", tacit.run(settings, tmp_path / "study"))
    assert contents["titles"] == ["R²", "RMSE", "MAE"]
    assert (contents["positive"], contents["leads"]) == ("", [])


def test_names_from_the_table_are_text_on_the_page(screening: tacit.Results) -> None:
    page = render(screening)
    for name in ("<script>ill", "<b>female", "dose <i>mg"):
        assert name not in page
        assert escape(name) in page


def test_the_table_of_all_metrics_is_a_frame(screening: tacit.Results) -> None:
    table = screening.all_metrics()
    assert table.shape == (5, 9)
    unknown = table.isna().sum()
    assert unknown["precision"] >= 1  # a guess takes nobody for ill
    assert unknown.drop("precision").sum() == 0
    assert isinstance(table, pd.DataFrame)
