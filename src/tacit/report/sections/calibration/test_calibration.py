"""Calibration curves and confusion matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patients import ILL, WELL, a_study_of, days_in_hospital, told_apart
from stored import a_copy, chart_data_of, contents_of, section_of

import tacit
from tacit.report.page import render
from tacit.report.sections.calibration.pictures import draw_calibration


def assessment_of(results: tacit.Results, run: str) -> dict[str, Any]:
    assessment = results.assessment(run)
    assert assessment is not None
    return assessment


def test_a_curve_has_the_bins_that_hold_five_rows_or_more(screening: tacit.Results) -> None:
    curves = [curve for curve in chart_data_of("calibration", screening) if not curve["client"]]
    assert len(curves) == len(screening.labels)
    for run, curve in zip(screening.labels, curves, strict=True):
        saved = assessment_of(screening, run)["calibration"]
        assert curve["method"] == screening.names[run]
        assert curve["split"] == screening.column_of(run)
        assert curve["error"] == saved["error"]
        filled = [k for k, rows in enumerate(saved["rows"]) if rows >= 5]
        assert 1 < len(filled) < 10
        columns = (saved["predicted"], saved["observed"], saved["rows"])
        assert curve["points"] == [[column[k] for column in columns] for k in filled]
        assert sum(saved["rows"]) == 600


def test_the_best_runs_clients_have_curves_on_their_own_tests(screening: tacit.Results) -> None:
    curves = [curve for curve in chart_data_of("calibration", screening) if curve["client"]]
    best = screening.best()
    assert [curve["client"] for curve in curves] == ["0", "1", "2"]
    for curve, client in zip(curves, assessment_of(screening, best)["clients"], strict=True):
        assert curve["method"] == screening.names[best]
        told = [rows for rows in client["calibration"]["rows"] if rows >= 5]
        assert [rows for _, _, rows in curve["points"]] == told
        assert curve["error"] == client["calibration"]["error"]


def test_matrices_count_the_test_rows(screening: tacit.Results) -> None:
    matrices = contents_of("calibration", screening)["matrices"]
    assert len(matrices) == len(screening.labels)
    for matrix, run in zip(matrices, screening.labels, strict=True):
        saved = assessment_of(screening, run)["confusion"]
        assert (matrix["method"], matrix["split"]) == (
            screening.names[run],
            screening.column_of(run),
        )
        assert list(matrix["labels"]) == [ILL, WELL]
        for row, counts in zip(matrix["rows"], saved, strict=True):
            assert [cell["count"] for cell in row["cells"]] == [str(count) for count in counts]
            assert sum(cell["shade"] for cell in row["cells"]) == pytest.approx(1)


def test_seeds_share_a_matrix_and_have_errors_of_their_own(results: tacit.Results) -> None:
    contents = contents_of("calibration", results)
    assert len(contents["errors"]) == len(results.labels)
    assert len(contents["matrices"]) == 7  # methods and splits
    assert contents["more"] == 0
    assert not contents["two_classes"]
    assert contents_of("metrics", results)["positive"] == ""


def test_the_words_suit_the_number_of_classes(screening: tacit.Results, tmp_path: Path) -> None:
    assert "by the probability of the positive class" in render(screening)
    settings = a_study_of(told_apart(90, 3), tmp_path / "rows.csv", "outcome")
    three = render(tacit.run(settings, tmp_path / "study"))
    assert "by the probability of their most likely class" in three


def test_numbers_and_unfinished_runs_have_no_calibration(
    screening: tacit.Results, tmp_path: Path
) -> None:
    settings = a_study_of(days_in_hospital(90), tmp_path / "rows.csv", "days", task="regression")
    numbers = tacit.run(settings, tmp_path / "study")
    going = a_copy(screening, tmp_path, lambda record: {**record, "status": "running"})
    for path in (going.folder / "assessments").iterdir():
        path.unlink()
    for results in (numbers, going):
        section = section_of("calibration")
        assert not section.is_shown(results)
        assert section.drawings(results) == {}
        assert 'id="chart-calibration"' not in render(results)


def test_the_picture_has_a_panel_per_split_and_the_reference_in_each(
    results: tacit.Results,
) -> None:
    figure = draw_calibration(chart_data_of("calibration", results))
    panels = [panel for panel in figure.axes if panel.lines]
    assert [panel.get_title(loc="left") or panel.get_title() for panel in panels] == [
        "iid",
        "label_dirichlet",
    ]
    for panel in panels:
        names = [str(line.get_label()) for line in panel.lines]
        assert names == ["as they say", "fedavg", "fedprox", "fedsgd", "centralised"]
