"""How well groups are served: on the page, and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patients import FEMALE
from stored import a_copy, contents_of

import tacit
from tacit.core.errors import StudyError
from tacit.report.page import render


def groups_of(results: tacit.Results) -> dict[str, dict[str, Any]]:
    """The tables by their column."""
    return {table["column"]: table for table in contents_of("fairness", results)["groups"]}


def assessment_of(results: tacit.Results, run: str) -> dict[str, Any]:
    assessment = results.assessment(run)
    assert assessment is not None
    return assessment


def test_a_row_is_a_group_of_the_best_run(screening: tacit.Results) -> None:
    tables = groups_of(screening)
    assert list(tables) == ["sex", "ward"]
    saved = assessment_of(screening, screening.best())["groups"]
    for column, table in tables.items():
        assert table["rows"] == saved[column]
        assert sum(row["rows"] for row in table["rows"]) == 600
    assert sum(row["positives"] for row in tables["sex"]["rows"]) == 24
    assert next(iter(tables["sex"]["metrics"].items())) == ("auc", "ROC AUC")
    by_sex = render(screening).split("<h3>By sex</h3>")[1].split("</thead>")[0]
    assert '<th scope="col">ROC AUC</th>' in by_sex


def test_every_run_has_a_gap_between_its_worst_and_best_group(screening: tacit.Results) -> None:
    gaps = groups_of(screening)["sex"]["gaps"]
    assert len(gaps) == len(screening.labels)
    for gap, run in zip(gaps, screening.labels, strict=True):
        figures = {
            row["group"]: row["auc"] for row in assessment_of(screening, run)["groups"]["sex"]
        }
        assert (gap["method"], gap["split"]) == (screening.names[run], screening.column_of(run))
        assert gap["gap"] == pytest.approx(abs(figures["male"] - figures[FEMALE]))
        assert figures[gap["low"]["group"]] <= figures[gap["high"]["group"]]


def test_groups_with_few_positives_have_no_gap(screening: tacit.Results) -> None:
    table = groups_of(screening)["ward"]
    assert {row["group"] for row in table["rows"]} == {"main", "attic"}
    assert table["gaps"] == []


def test_clients_are_shown_by_group_with_their_rows(screening: tacit.Results) -> None:
    table = groups_of(screening)["sex"]["clients"]
    saved = assessment_of(screening, screening.best())["clients"]
    assert [row["client"] for row in table["rows"]] == ["0", "1", "2"]
    for row, client in zip(table["rows"], saved, strict=True):
        by_group = {entry["group"]: entry for entry in client["groups"]["sex"]}
        assert row["cells"] == [by_group.get(group) for group in table["groups"]]


def test_without_columns_or_assessments_there_are_no_groups(
    results: tacit.Results, screening: tacit.Results, tmp_path: Path
) -> None:
    copy = a_copy(screening, tmp_path)
    for path in (copy.folder / "assessments").iterdir():
        path.unlink()
    assert groups_of(results) == groups_of(copy) == {}
    assert "<h3>By sex</h3>" not in render(copy)


def test_the_frame_of_groups_is_for_all_and_for_each_client(screening: tacit.Results) -> None:
    run = screening.best()
    frame = screening.groups(run, "sex")
    assert list(frame)[:4] == ["client", "group", "rows", "positives"]
    assert list(frame)[4:] == screening.measured
    assert frame["client"].unique().tolist() == ["all", "0", "1", "2"]
    everybody = frame[frame["client"] == "all"].drop(columns="client").to_dict("records")
    assert everybody == assessment_of(screening, run)["groups"]["sex"]
    by_client = frame[frame["client"] != "all"].groupby("client")["rows"].sum()
    assert by_client.tolist() == [
        client["rows"] for client in assessment_of(screening, run)["clients"]
    ]


def test_a_column_that_was_not_named_is_refused(
    results: tacit.Results, screening: tacit.Results, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match="has no groups by 'sec'; did you mean sex"):
        screening.groups(screening.best(), "sec")
    with pytest.raises(StudyError, match=r"has no groups; name columns, .*fairness: \[sex, age\]"):
        results.groups(results.best(), "sex")
    with pytest.raises(StudyError, match="no run is called 'nobody'"):
        screening.importance("nobody")
    copy = a_copy(screening, tmp_path)
    (copy.folder / "assessments" / f"{screening.best()}.json").unlink()
    with pytest.raises(StudyError, match="has not been assessed"):
        copy.groups(screening.best(), "sex")
