"""A user's table in a study: clients keep their rows, and new rows are encoded and answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.core.events import Event, Warned
from tacit.study.study import Study
from tacit.study.study_data import try_out


def patients(rows: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame()
    frame["hospital"] = rng.choice(["north", "south", "east"], rows, p=[0.5, 0.3, 0.2])
    frame["age"] = rng.normal(60, 10, rows).round(1)
    frame["sex"] = rng.choice(["f", "m", None], rows)
    days = pd.to_timedelta(rng.integers(0, 700, rows), "D")
    frame["admitted"] = (pd.Timestamp("2024-01-01") + days).strftime("%Y-%m-%d")
    frame["stay"] = (frame["age"] / 10 + rng.normal(0, 0.3, rows)).round(2)
    frame["outcome"] = np.where(frame["age"] > 60, "ill", "well")
    return frame


def a_study(
    folder: Path, target: str = "outcome", drop: str = "stay", **settings: Any
) -> dict[str, Any]:
    patients().to_csv(folder / "patients.csv", index=False)
    dataset = {
        "name": "table",
        "path": str(folder / "patients.csv"),
        "client": "hospital",
        "target": target,
        "drop": [drop],
    }
    small = {
        "dataset": dataset,
        "model": "linear",
        "clients": 3,
        "rounds": 8,
        "split": "by_client",
        "optimiser": {"name": "sgd", "lr": 0.1},
    }
    return {**small, **settings}


def test_each_hospital_keeps_its_rows_and_its_name(tmp_path: Path) -> None:
    run = Study(**a_study(tmp_path)).runs()[0]
    data = run.dataset.load()
    partition, _ = try_out(run, data)
    assert partition.names == ("east", "north", "south")
    assert data.frame is not None
    hospital = patients()["hospital"].iloc[data.frame.index].to_numpy()
    for client, name in enumerate(partition.names):
        rows = np.concatenate([partition.train[client], partition.test[client]])
        assert set(hospital[rows]) == {name}


def test_the_number_of_clients_must_be_the_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the column hospital names 3 clients; set clients: 3"):
        tacit.run(a_study(tmp_path, clients=4), tmp_path / "a")
    with pytest.raises(DataError, match="by_client needs data that name each row's client"):
        tacit.run({"dataset": "iris", "split": "by_client"}, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_client_column_that_the_split_ignores_is_pointed_out(tmp_path: Path) -> None:
    heard: list[Event] = []
    results = tacit.run(a_study(tmp_path, split="iid"), tmp_path / "a", on_event=heard.append)
    text = "the column hospital says which client a row belongs to, and iid divides the rows"
    warnings = [event.text for event in heard if isinstance(event, Warned)]
    assert any(text in warning for warning in warnings)
    assert any(text in caution for caution in results.cautions)
    assert results.client_names(results.best()) == ("0", "1", "2")


def test_new_rows_are_predicted_without_the_table(tmp_path: Path) -> None:
    results = tacit.run(a_study(tmp_path, rounds=30), tmp_path / "a")
    run = results.best()
    assert results.client_names(run) == ("east", "north", "south")
    (tmp_path / "patients.csv").unlink()
    new = pd.DataFrame(
        {
            "age": [85.0, 35.0, None],
            "sex": ["f", "m", "x"],
            "admitted": ["2024-05-01", "2025-01-01", None],
        },
        index=["ann", "bob", "eve"],
    )
    predicted = tacit.Results(tmp_path / "a").predict(run, new)
    assert predicted.index.tolist() == ["ann", "bob", "eve"]
    assert predicted.name == "outcome"
    assert predicted[["ann", "bob"]].tolist() == ["ill", "well"]
    assert results.predict(run, new.head(0)).empty
    with pytest.raises(DataError, match="the rows have no column 'age'"):
        results.predict(run, new.drop(columns="age"))


def test_a_regression_answers_in_the_tables_own_units(tmp_path: Path) -> None:
    study = a_study(tmp_path, "stay", "outcome", rounds=40, algorithm=["fedavg", "fedplus"])
    results = tacit.run(study, tmp_path / "a", on_event=lambda _event: None)
    new = patients().head(20)
    plain, personal = results.runs
    assert np.abs(results.predict(plain, new) - new["stay"]).mean() < 1
    personal_answers = results.predict(personal, new, client=1)
    assert not np.allclose(personal_answers, results.predict(personal, new))
    data = results.runs[plain].dataset.load()
    with torch.no_grad():
        output = results.model(plain)(data.test_x)[:, 0]
    answers = output * data.target_spread + data.target_centre
    assert data.frame is not None
    test_rows = data.frame.tail(len(answers))
    np.testing.assert_allclose(results.predict(plain, test_rows), answers, rtol=1e-5)
    assert any("stay is taken for a measurement" in caution for caution in results.cautions)


def test_every_table_of_a_study_has_its_encoding(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    tables = [study["dataset"], {**study["dataset"], "drop": ["stay", "sex"]}]
    results = tacit.run({**study, "dataset": tables, "seed": [0, 1]}, tmp_path / "a")
    files = {path.name for path in (tmp_path / "a").glob("encoding*")}
    assert files == {"encoding.json", "encoding-2.json"}
    assert results.encoding is not None
    assert [column.name for column in results.encoding.columns] == ["age", "sex", "admitted"]
    for run, spec in results.runs.items():
        encoding = results.encoding_of(run)
        assert encoding is not None
        assert encoding.names == spec.dataset.load().columns
        results.predict(run, patients().head(3))
    with pytest.raises(StudyError, match="no run is called 'x'"):
        results.predict("x", patients())


def test_data_that_are_no_table_have_no_encoding(tmp_path: Path) -> None:
    results = tacit.run({"dataset": "iris", "rounds": 1, "clients": 2}, tmp_path / "a")
    assert results.encoding is None
    message = "has no encoding that says what to predict: its data are not a table"
    with pytest.raises(StudyError, match=message):
        results.predict(results.best(), patients())


def test_a_table_stopped_and_resumed_keeps_its_encoding(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if type(event).__name__ == "RoundFinished":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.run(a_study(tmp_path), tmp_path / "a", on_event=stop)
    before = (tmp_path / "a" / "encoding.json").read_bytes()
    tacit.resume(tmp_path / "a")
    assert (tmp_path / "a" / "encoding.json").read_bytes() == before


def test_pretraining_uses_a_public_table_in_the_studys_encoding(tmp_path: Path) -> None:
    rows = patients(60).drop(columns=["hospital", "stay"]).assign(sex="m")
    rows.to_csv(tmp_path / "public.csv", index=False)
    public = {"name": "table", "path": str(tmp_path / "public.csv"), "target": "outcome"}
    study = a_study(tmp_path, public=public, pretraining=5, distillation=1)
    results = tacit.run(study, tmp_path / "a")
    assert results.summary()["accuracy"].iloc[0] > 0.7


def test_dollars_in_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "x": [0.5 * number for number in range(60)],
            "who": ["Caf$ & Co$", "B$_x_$"] * 30,
            "y": ["a$^$", "b", "b"] * 20,
        }
    )
    rows.to_csv(tmp_path / "t.csv", index=False)
    table = {"name": "table", "path": str(tmp_path / "t.csv"), "target": "y", "client": "who"}
    study = {"dataset": table, "model": "linear", "split": "by_client", "clients": 2, "rounds": 2}
    results = tacit.run(study, tmp_path / "a")
    results.write_report()
    assert "B$_x_$" in (results.folder / "figures" / "splits.svg").read_text()


def test_a_client_is_asked_by_its_name(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "x": [0.5 * number for number in range(60)],
            "who": ["Köln", "Bonn"] * 30,
            "y": ["a", "b", "b"] * 20,
        }
    )
    rows.to_csv(tmp_path / "t.csv", index=False)
    table = {"name": "table", "path": tmp_path / "t.csv", "target": "y", "client": "who"}
    study = {
        "dataset": table,
        "model": "linear",
        "split": "by_client",
        "clients": 2,
        "rounds": 2,
        "algorithm": "fedplus",
    }
    results = tacit.run(study, tmp_path / "a")
    run = results.best()
    new = pd.DataFrame({"x": [1, 50]})
    by_name = results.predict(run, new, client="Köln")
    by_number = results.predict(run, new, client=1)
    assert by_name.tolist() == by_number.tolist()
    assert set(results.client_frame()["name"]) == {"Bonn", "Köln"}
    with pytest.raises(StudyError, match="no client is called 'Koln'; did you mean Köln"):
        results.predict(run, new, client="Koln")
