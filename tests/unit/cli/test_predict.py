"""`tacit predict`: rows in, the same rows with predictions out."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import tacit
from patients import LINEAR, a_study_of, days_in_hospital, told_apart

from tacit import Results, run

ROWS = (
    "id,marker0,marker1,note\n007,0.50,1.5,yes\n008,4,-1e0,NA\n009,-1,4,\n"  # as they are written
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with studies of two classes, of three and of numbers, and with new rows."""
    folder = tmp_path_factory.mktemp("predict")
    frame = told_apart(200)
    frame["site"] = np.arange(200) // 2 % 2 + 7  # clients that are called 7 and 8
    settings = a_study_of(frame, folder / "two.csv", "outcome", client="site")
    own = {"split": "by_client", "clients": 2, "algorithm": ["fedavg", "fedplus"]}
    run({**settings, **own}, folder / "two")
    run(a_study_of(told_apart(90, 3), folder / "three.csv", "outcome"), folder / "three")
    settings = a_study_of(days_in_hospital(90), folder / "days.csv", "days", task="regression")
    run(settings, folder / "days")
    run({**LINEAR, "dataset": "iris"}, folder / "iris")
    (folder / "new.csv").write_text(ROWS)
    return folder


def cells_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_the_rows_come_back_as_they_were_written_with_new_columns(folder: Path) -> None:
    done = tacit("predict", "two", "new.csv", "-o", "out.csv", cwd=folder)
    best = Results(folder / "two").best()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"3 rows, predicted by {best}: out.csv\n"
    written = cells_of((folder / "out.csv").read_text())
    given = cells_of(ROWS)
    assert [line[:4] for line in written] == given
    probabilities = ["probability of asthma", "probability of bronchitis"]
    assert written[0][4:] == ["predicted outcome", *probabilities]
    proba = Results(folder / "two").predict(best, folder / "new.csv", proba=True)
    answers = [line[4:] for line in written[1:]]
    assert [line[0] for line in answers] == proba.idxmax(axis=1).tolist()
    shown = np.array([line[1:] for line in answers], float)
    np.testing.assert_allclose(shown, proba, rtol=1e-6)


def test_without_a_file_the_rows_are_printed(folder: Path) -> None:
    done = tacit("predict", "two", "new.csv", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line[0] for line in cells_of(done.stdout)] == ["id", "007", "008", "009"]
    quiet = tacit("predict", "two", "new.csv", "-q", "-o", "quiet.csv", cwd=folder)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (folder / "quiet.csv").read_text() == done.stdout


def test_json_output_tells_the_run_and_holds_predictions_that_no_file_holds(folder: Path) -> None:
    best = Results(folder / "two").best()
    done = tacit("predict", "two", "new.csv", "--json", "-o", "json.csv", cwd=folder)
    assert json.loads(done.stdout) == {"run": best, "rows": 3, "out": "json.csv"}
    assert (folder / "json.csv").exists()
    shown = json.loads(tacit("predict", "two", "new.csv", "--json", cwd=folder).stdout)
    labels = Results(folder / "two").predict(best, folder / "new.csv").tolist()
    assert [row["predicted outcome"] for row in shown["predictions"]] == labels
    assert len(shown["predictions"][0]) == 3


def test_the_threshold_is_that_of_the_library(folder: Path) -> None:
    results = Results(folder / "two")
    risk = results.predict(results.best(), folder / "new.csv", proba=True)["bronchitis"]
    middle = f"{float(risk.median()):.17g}"
    done = tacit("predict", "two", "new.csv", "--threshold", middle, cwd=folder)
    labels = [line[4] for line in cells_of(done.stdout)[1:]]
    assert sorted(labels) == ["asthma", "bronchitis", "bronchitis"]
    assert (
        labels
        == results.predict(results.best(), folder / "new.csv", threshold=float(middle)).tolist()
    )


def test_a_run_and_a_client_are_chosen(folder: Path) -> None:
    results = Results(folder / "two")
    (personal,) = [id for id, name in results.names.items() if name == "fedplus"]
    (plain,) = [id for id, name in results.names.items() if name == "fedavg"]
    printed = []
    for arguments in (["--run", plain], ["--run", personal], ["--run", personal, "--client", "8"]):
        done = tacit("predict", "two", "new.csv", *arguments, cwd=folder)
        assert done.returncode == 0
        printed.append([line[5] for line in cells_of(done.stdout)[1:]])
    assert len({tuple(column) for column in printed}) == 3
    proba = results.predict(personal, folder / "new.csv", client="8", proba=True)
    np.testing.assert_allclose(np.array(printed[2], float), proba["asthma"], rtol=1e-6)


def test_numbers_have_one_new_column(folder: Path) -> None:
    done = tacit("predict", "days", "days.csv", cwd=folder)
    table = pd.read_csv(io.StringIO(done.stdout))
    assert list(table) == ["age", "noise", "days", "predicted days"]
    results = Results(folder / "days")
    expected = results.predict(results.best(), folder / "days.csv")
    np.testing.assert_allclose(table["predicted days"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("two new.csv --run 000-iid-fedprox", "no run is called '000-iid-fedprox'"),
        ("two new.csv --client 9", "has no model of its own for client 9"),
        ("two new.csv --client ²", "no client is called '²'; known: 7, 8"),
        ("two new.csv --client Turku", "no client is called 'Turku'; known: 7, 8"),
        ("two new.csv --threshold 1.5", "expected a probability from 0 to 1, got 1.5"),
        ("two new.csv --threshold half", "'half' is not a valid float"),
        ("three three.csv --threshold 0.5", "outcome has 3 classes; leave it out"),
        ("days days.csv --threshold 0.5", "days has no classes; leave it out"),
        ("two absent.csv", "absent.csv does not exist; expected a table"),
        ("two new.xlsx", "expected a name that ends in .csv, .tsv or .parquet"),
        ("two days.csv", "the rows have no column 'marker0'"),
        ("two done.csv", "done.csv has a column 'predicted outcome' already"),
        ("nowhere new.csv", "nowhere holds no study"),
        ("two new.csv -o two", "two is a file of the study; write the predictions to another file"),
        ("iris new.csv", "has no encoding that says what to predict: its data are not a table"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    folder: Path, arguments: str, line: str
) -> None:
    (folder / "new.xlsx").write_bytes(b"PK")
    (folder / "done.csv").write_text(ROWS.replace("note", "predicted outcome"))
    before = sorted(path.name for path in folder.iterdir())
    done = tacit("predict", *arguments.split(), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_rows_are_never_overwritten(folder: Path) -> None:
    os.symlink(folder / "new.csv", folder / "link.csv")
    os.link(folder / "new.csv", folder / "twin.csv")
    for out in ("new.csv", "./new.csv", "link.csv", "twin.csv"):
        done = tacit("predict", "two", "new.csv", "-o", out, cwd=folder)
        assert done.returncode == 2
        assert "holds the rows; write the predictions to another file" in done.stderr
        assert (folder / "new.csv").read_text() == ROWS


def test_a_file_of_the_study_is_never_overwritten_and_another_one_only_if_forced(
    folder: Path,
) -> None:
    before = (folder / "two" / "study.yaml").read_text()
    for force in ([], ["--force"]):
        done = tacit("predict", "two", "new.csv", "-o", "two/study.yaml", *force, cwd=folder)
        assert done.returncode == 2
        assert "two/study.yaml is a file of the study" in done.stderr
    assert (folder / "two" / "study.yaml").read_text() == before
    (folder / "mine.csv").write_text("mine")
    done = tacit("predict", "two", "new.csv", "-o", "mine.csv", cwd=folder)
    assert done.returncode == 2
    assert "mine.csv exists already; name another file, or overwrite it with --force" in done.stderr
    assert (folder / "mine.csv").read_text() == "mine"
    assert (
        tacit("predict", "two", "new.csv", "-o", "mine.csv", "--force", cwd=folder).returncode == 0
    )
    assert (folder / "mine.csv").read_text() != "mine"


def test_a_parquet_file_is_written_as_one(folder: Path) -> None:
    assert tacit("predict", "two", "new.csv", "-o", "out.parquet", cwd=folder).returncode == 0
    printed = tacit("predict", "two", "new.csv", cwd=folder).stdout
    table = pd.read_parquet(folder / "out.parquet")
    assert list(table) == cells_of(printed)[0]


def test_a_study_that_has_not_ended_a_round_predicts_nothing(folder: Path) -> None:
    history = folder / "three" / "history.jsonl"
    text = history.read_text()
    history.write_text("")
    done = tacit("predict", "three", "three.csv", cwd=folder)
    history.write_text(text)
    assert done.returncode == 2
    assert done.stderr == "error: there is no best run: none has ended a round yet\n"
