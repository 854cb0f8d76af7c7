"""Data that are given as Python objects: data frames, arrays and tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit.core.errors import DataError, StudyError, TacitError
from tacit.data import own_frames
from tacit.data.dataset import Dataset
from tacit.data.own_frames import remember
from tacit.study.study import Study

SMALL: dict[str, Any] = {"clients": 2, "rounds": 1, "model": "linear"}


def patients(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "ward": rng.choice(["A", "B"], rows),
            "age": rng.normal(60, 10, rows),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(rows), "D"),
        }
    )
    return frame.assign(died=np.where(frame["age"] > 60, "yes", "no"))


def table(frame: pd.DataFrame, **settings: Any) -> dict[str, Any]:
    return {"name": "table", "path": frame, "target": "died", **settings}


def load(dataset: Any) -> Dataset:
    [run] = Study(dataset=dataset).runs()
    return run.dataset.load()


def test_a_data_frame_gives_what_its_file_gives(tmp_path: Path) -> None:
    frame = patients()
    frame.to_parquet(tmp_path / "t.parquet")
    data = load(table(frame))
    assert data.fingerprint() == load(table(str(tmp_path / "t.parquet"))).fingerprint()  # type: ignore[arg-type]
    assert load(table(frame.set_index("seen", drop=False))).fingerprint() == data.fingerprint()


def test_a_study_of_a_data_frame_is_run_resumed_and_read_again(tmp_path: Path) -> None:
    study = Study(dataset=table(patients(), client="ward"), split="by_client", **SMALL)
    results = tacit.run(study, tmp_path / "a")
    assert tacit.resume(tmp_path / "a").summary()["status"].tolist() == ["finished"]
    again = Study.from_file(tmp_path / "a" / "study.yaml")
    assert again.to_dict() == study.to_dict()
    assert len(results.predict(results.best(), patients())) == 60
    assert "on a data frame" in study.question()


def test_a_data_frame_of_another_session_is_asked_for(tmp_path: Path) -> None:
    study = Study(dataset=table(patients()), **SMALL)
    (tmp_path / "study.yaml").write_text(study.to_yaml())
    script = "import sys, tacit; tacit.Splits('study.yaml')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "was given as a Python object, and is not known here" in last
    assert "pass the same data to a Study first" in last


def test_worker_processes_get_the_data(tmp_path: Path) -> None:
    study = Study(dataset=table(patients()), seed=[0, 1], **SMALL)
    alone = tacit.run(study, tmp_path / "a")
    together = tacit.run(study, tmp_path / "b", workers=2)
    assert alone.summary()["accuracy"].tolist() == together.summary()["accuracy"].tolist()


def test_a_data_frame_is_taken_as_it_was_and_named_by_what_it_holds() -> None:
    frame = patients()
    study = Study(dataset=table(frame))
    before = study.runs()[0].dataset.load().fingerprint()
    frame.loc[:30, "age"] = 0.0
    assert study.runs()[0].dataset.load().fingerprint() == before
    names = [frame, frame.rename(columns={"age": "years"}), frame.iloc[::-1], frame.astype(str)]
    assert len({remember(each) for each in names}) == 4
    assert remember(frame) == remember(frame.copy())


def test_a_test_file_may_be_a_data_frame_too() -> None:
    frame = patients()
    data = load(table(frame, test=frame.head(20)))
    assert torch.equal(data.test_x, data.x[:20])
    assert load(table(frame, test={"path": frame.head(20)})).fingerprint() == data.fingerprint()


@pytest.mark.parametrize("form", ["numpy", "torch", "pandas"])
def test_samples_and_outcomes_make_a_table_whatever_holds_them(form: str) -> None:
    x = np.random.default_rng(0).normal(5, 2, (50, 3))
    y = (x[:, 0] > 5).astype(int)
    names = ["x0", "x1", "x2"]
    pairs: dict[str, Any] = {
        "numpy": (x, y),
        "torch": (torch.from_numpy(x), torch.from_numpy(y)),
        "pandas": (pd.DataFrame(x, columns=names), pd.Series(y, index=range(50, 100))),
    }
    data = load(pairs[form])
    assert data.columns == ("x0", "x1", "x2")
    assert data.labels == ("0", "1")
    assert abs(data.x.mean()) < 1e-5
    assert data.fingerprint() == load((x, y)).fingerprint()


def test_arrays_are_predicted_as_they_were_given(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(5, 2, (50, 3))
    y = np.where(x[:, 0] > 5, "high", "low")
    results = tacit.run(Study(dataset=(x, y), **SMALL), tmp_path / "a")
    predicted = results.predict(results.best(), x)
    named = pd.DataFrame(x, columns=["x0", "x1", "x2"])
    assert predicted.tolist() == results.predict(results.best(), named).tolist()
    with pytest.raises(StudyError, match=r"the 3 columns x0, x1, x2; got the shape \(50, 2\)"):
        results.predict(results.best(), x[:, :2])


def test_pictures_are_taken_as_they_are() -> None:
    x = np.random.default_rng(0).random((40, 1, 4, 4))
    data = load((x, np.arange(40) % 2))
    assert data.x.shape == (32, 1, 4, 4)
    assert data.x.max() <= 1
    assert load((x, np.arange(40.0))).task == "regression"


def test_several_data_sets_make_a_grid() -> None:
    frame = patients()
    x = np.zeros((20, 2))
    y = np.arange(20) % 2
    assert len(Study(dataset=[table(frame), (x, y), "iris"]).runs()) == 3
    assert len(Study(dataset={"grid": [table(frame), (x, y)]}).runs()) == 2


X = np.zeros((20, 2))
Y = np.arange(20) % 2


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (patients(), "which column of the data frame is to be predicted.*ward, age, seen, died"),
        (X, r"write \(x, y\)"),
        ([X, Y], r"write \(x, y\)"),
        ((X,), r"write \(x, y\)"),
        ((X, Y[:5]), "x has 20 rows and y 5"),
        ((X[:, 0], Y), "x needs a row for each sample"),
        ((pd.DataFrame(X, columns=["a", "b"]), pd.Series(Y, name="a")), "x has a column a too"),
        ({"name": "table", "path": X, "target": "y"}, "path is an array"),
        ({"name": "table", "path": "t.csv", "target": patients()}, "target is a data frame"),
        ({"name": "table", "path": patients()}, "table needs target"),
    ],
)
def test_data_that_do_not_say_what_to_predict_are_refused(dataset: Any, message: str) -> None:
    with pytest.raises(TacitError, match=message):
        Study(dataset=dataset)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pd.concat([patients(), patients()[["age"]]], axis=1)
    with pytest.raises(DataError, match="two columns that are called age"):
        load(table(twice))


def test_arrays_of_another_session_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(dataset=(np.zeros((20, 1, 2, 2)), Y))
    monkeypatch.setattr(own_frames, "PAIRS", {})
    with pytest.raises(DataError, match="not known here"):
        study.runs()[0].dataset.load()


@pytest.mark.parametrize(
    ("y", "complaint"),
    [
        (None, "y needs an outcome for each sample"),
        (1, "y needs an outcome for each sample"),
        ({1, 2}, "y needs an outcome for each sample"),
        (np.zeros((6, 2)), r"y needs one outcome for each sample, got the shape \(6, 2\)"),
        ([[1], [2], [3], [4], [5], [6, 7]], "y holds lists"),
        (np.array([[1], None, 3, 4, 5, 6], dtype=object), "y holds lists"),
        (pd.DataFrame({"a": range(6), "b": range(6)}), "expected one column to predict, y has 2"),
        (np.ma.masked_array(range(6), mask=[1, 0, 0, 0, 0, 0]), "got a masked one; fill it"),
        (np.arange(6) * 1j, "expected an array of numbers or text, got complex128"),
    ],
)
def test_what_is_no_row_of_outcomes_is_refused(y: Any, complaint: str) -> None:
    with pytest.raises(StudyError, match=complaint):
        tacit.Study(dataset=(np.zeros((6, 2)), y))
