"""`tacit new` for a table of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import tacit
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.core.errors import DataError, TacitError
from tacit.data.datasets import Source
from tacit.study.study import Study


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"hospital": rng.choice(["a", "b", "c"], 90), "age": rng.normal(60, 9, 90)}
    )
    frame["region"] = rng.choice(["north", "south", None], 90)
    frame["outcome"] = np.where(frame["age"] > 60, "ill", "well")
    frame.to_csv("patients.csv", index=False)
    return tmp_path


def new(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["new", "study.yaml", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_table_is_described_and_its_clients_are_counted(folder: Path) -> None:
    shown = new("--table", "patients.csv", "--target", "outcome", "--client", "hospital")
    assert "one of 2 levels: " in shown
    assert "taken as one more level" in shown
    assert "outcome: one of 2 classes; 4 features; 72 rows of 3 clients" in shown
    assert " of 3 clients (hospital) to learn from, 18 to test on" in shown
    run = Study.from_file(folder / "study.yaml").runs()[0]
    assert (run.clients, run.split.name) == (3, "by_client")
    assert run.dataset.spec()["client"] == "hospital"
    assert "# how the samples are divided" in (folder / "study.yaml").read_text()


def test_a_number_is_predicted_and_without_a_client_column_rows_are_shared_out(
    folder: Path,
) -> None:
    shown = new("--table", "patients.csv", "--target", "age")
    assert "age: a number" in shown
    assert "note: age is taken for a measurement" in shown
    run = Study.from_file(folder / "study.yaml").runs()[0]
    assert (run.clients, run.split.name) == (4, "iid")


def test_categories_dates_and_dropped_columns_are_written_down(folder: Path) -> None:
    table = pd.read_csv("patients.csv").assign(visit="31/12/2025", ward=7)
    table.to_csv("visits.csv", index=False)
    columns = ["--category", "ward", "--date", "visit=%d/%m/%Y", "--drop", "region"]
    new("--table", "visits.csv", "--target", "outcome", *columns)
    source = Study.from_file(folder / "study.yaml").runs()[0].dataset.spec()
    assert list(source["categories"]) == ["ward"]
    assert source["dates"] == {"visit": "%d/%m/%Y"}
    assert list(source["drop"]) == ["region"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "patients.csv"], "which column of patients.csv is to be predicted"),
        (["--target", "outcome"], "name it too: --table my.csv"),
        (["--table", "patients.csv", "--target", "outcom"], r"did you mean outcome\? \(--target\)"),
        (["--table", "patients.csv", "--target", "outcome", "--drop", "ag"], r"age\? \(--drop\)"),
        (["--table", "patients.csv", "--target", "outcome", "--task", "guess"], r"\(--task\)"),
        (["--table", "nowhere.csv", "--target", "outcome"], "nowhere.csv does not exist"),
        (["--task", "regression"], "name it too: --table my.csv"),
    ],
)
def test_what_cannot_be_read_is_said_and_nothing_is_written(
    folder: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(TacitError, match=message):
        new(*arguments)
    assert not (folder / "study.yaml").exists()


def test_a_column_that_cannot_be_taken_is_said_with_the_option_that_helps(folder: Path) -> None:
    table = pd.read_csv("patients.csv").assign(visit="31/12/2025")
    table.to_csv("visits.csv", index=False)
    done = tacit("new", "study.yaml", "--table", "visits.csv", "--target", "outcome", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.endswith("dates: {visit: '%d/%m/%Y'} (--date visit=%d/%m/%Y)\n")
    assert done.stderr.count("\n") == 1
    assert not (folder / "study.yaml").exists()


def test_several_columns_that_cannot_be_taken_have_a_line_each(folder: Path) -> None:
    table = pd.read_csv("patients.csv").assign(visit="31/12/2025")
    table["full name"] = [f"person {number}x" for number in range(len(table))]
    table["weight"] = [f"{number} kg" for number in range(len(table))]
    table.to_csv("visits.csv", index=False)
    command = ["new", "study.yaml", "--table", "visits.csv", "--target", "outcome"]
    done = tacit(*command, cwd=folder)
    assert done.returncode == 2
    heading, *lines = done.stderr.splitlines()
    assert heading == f"error: {folder / 'visits.csv'}: 3 columns cannot be taken:"
    options = ["(--date visit=%d/%m/%Y)", "(--drop 'full name')", "(--drop weight)"]
    for line, option in zip(lines, options, strict=True):
        assert line.startswith("  column ")
        assert line.endswith(option)
    remedies = ["--date", "visit=%d/%m/%Y", "--drop", "full name", "--drop", "weight"]
    assert tacit(*command, *remedies, cwd=folder).returncode == 0


def test_in_python_several_columns_are_one_line(folder: Path) -> None:
    table = pd.read_csv("patients.csv").assign(visit="31/12/2025", left="1/2/2025")
    table.to_csv("visits.csv", index=False)
    source = Source.build({"name": "table", "path": "visits.csv", "target": "outcome"})
    with pytest.raises(DataError) as caught:
        source.load()
    assert "\n" not in str(caught.value)
    assert "2 columns cannot be taken: column visit looks like dates" in str(caught.value)
    assert "--" not in str(caught.value)
    assert [detail.parameters for detail in caught.value.details] == [("dates",), ("dates",)]
