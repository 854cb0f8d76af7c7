"""How much worse models become where a column is shuffled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patients import DOSE, a_study_of, told_apart
from stored import contents_of, section_of

import tacit
from tacit.report.page import render

NOTHING: dict[str, Any] = {"importance": 0}


def drops_of(findings: dict[str, Any]) -> dict[str, float]:
    return {row["column"]: row["drop"] for row in findings["importance"]}


def test_a_cell_is_the_mean_drop_over_a_methods_runs(screening: tacit.Results) -> None:
    table = contents_of("importance", screening)["methods"]
    assert table["names"] == screening.methods
    for position, method in enumerate(table["names"]):
        runs = [run for run, name in screening.names.items() if name == method]
        assert len(runs) == 2
        assessments = [screening.assessment(run) for run in runs]
        saved = [drops_of(assessment) for assessment in assessments if assessment]
        for row in table["rows"]:
            mean = (saved[0][row["column"]] + saved[1][row["column"]]) / 2
            assert row["cells"][position]["text"] == f"{mean:.4f}"


def test_what_tells_most_stands_first(screening: tacit.Results) -> None:
    contents = contents_of("importance", screening)
    columns = [row["column"] for row in contents["methods"]["rows"]]
    assert columns[:2] == ["age", DOSE]
    assert set(columns) == {"age", DOSE, "region", "sex", "ward"}
    assert contents["left_out"] == 0
    shades = [cell["shade"] for row in contents["methods"]["rows"] for cell in row["cells"]]
    assert (min(shades), max(shades)) == (0, 1)


def test_clients_of_the_best_run_have_columns_of_their_own(screening: tacit.Results) -> None:
    contents = contents_of("importance", screening)
    best = screening.best()
    assessment = screening.assessment(best)
    assert assessment is not None
    assert contents["clients"]["names"] == ["0", "1", "2"]
    assert contents["best"] == f"{screening.names[best]}, {screening.column_of(best)}"
    for position, client in enumerate(assessment["clients"]):
        for row in contents["clients"]["rows"]:
            drop = drops_of(client)[row["column"]]
            assert row["cells"][position]["text"] == f"{drop:.4f}"


def test_only_the_first_of_many_columns_are_shown(
    screening: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.report.sections.importance.section.MOST_COLUMNS", 2)
    contents = contents_of("importance", screening)
    assert [row["column"] for row in contents["methods"]["rows"]] == ["age", DOSE]
    assert contents["left_out"] == 3
    assert "3 more columns matter less" in render(screening)


def test_a_study_that_shuffles_nothing_has_no_section(tmp_path: Path) -> None:
    settings = a_study_of(told_apart(90), tmp_path / "rows.csv", "outcome")
    results = tacit.run({**settings, **NOTHING}, tmp_path / "study")
    assert not section_of("importance").is_shown(results)
    assert section_of("importance").drawings(results) == {}
    assert results.importance(results.best()).empty
    assert "Columns that matter" not in render(results)


def test_the_frame_has_the_largest_drop_first_for_all_and_for_each_client(
    screening: tacit.Results,
) -> None:
    run = screening.best()
    frame = screening.importance(run)
    assert list(frame) == ["client", "column", "drop", "deviation"]
    assert frame["client"].unique().tolist() == ["all", "0", "1", "2"]
    assert len(frame) == 4 * 5
    for _, rows in frame.groupby("client"):
        assert rows["drop"].is_monotonic_decreasing
    assessment = screening.assessment(run)
    assert assessment is not None
    everybody = frame[frame["client"] == "all"].set_index("column")["drop"]
    assert everybody.to_dict() == drops_of(assessment)
