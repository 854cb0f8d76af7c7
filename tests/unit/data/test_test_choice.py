"""Test rows that the user has chosen: a file, whole groups, the latest rows, one client."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.core.errors import DataError, StudyError
from tacit.core.events import Event, Warned, ignore
from tacit.data.dataset import Dataset
from tacit.data.datasets import Source
from tacit.study.run_names import label_runs, row_names, run_ids, table_columns
from tacit.study.study import Study
from tacit.study.study_data import load_data


def patients(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "hospital": rng.choice(["Aalborg", "Bergen", "Turku"], rows, p=[0.5, 0.3, 0.2]),
            "patient": rng.integers(0, rows // 3, rows),
            "age": rng.normal(60, 10, rows).round(1),
            "sex": rng.choice(["f", "m"], rows),
            "day": rng.permutation(rows),
        }
    )
    days = pd.to_timedelta(frame["day"], "D")
    frame["admitted"] = (pd.Timestamp("2024-01-01") + days).dt.strftime("%Y-%m-%d")
    frame["stay"] = (frame["age"] / 10 + rng.normal(0, 1, rows)).round(2)
    frame["outcome"] = np.where(frame["age"] + rng.normal(0, 5, rows) > 60, "ill", "well")
    return frame


def spec(folder: Path, frame: pd.DataFrame, **settings: Any) -> dict[str, Any]:
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    return {"name": "table", "path": str(path), "target": "outcome", **settings}


def load(
    folder: Path, frame: pd.DataFrame, events: list[Event] | None = None, **settings: Any
) -> Dataset:
    source = Source.build(spec(folder, frame, **settings))
    return source.load(None, [].append if events is None else events.append)


def rows_of(data: Dataset) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The training rows and the test rows, as they were in the table."""
    assert data.frame is not None
    return data.frame.iloc[: len(data.y)], data.frame.iloc[len(data.y) :]


def test_a_test_file_is_tested_on_and_nothing_is_learnt_from_it(tmp_path: Path) -> None:
    frame = patients()
    later = patients(50).assign(age=1000.0, sex="x")[["outcome", "sex", "age"]]
    later.to_csv(tmp_path / "later.csv", index=False)
    keep = frame[["age", "sex", "outcome"]]
    data = load(tmp_path, keep, test=str(tmp_path / "later.csv"))
    assert (len(data.y), len(data.test_y)) == (200, 50)
    assert set(data.columns) == {"age", "sex = f", "sex = m"}
    assert data.encoding is not None
    assert data.encoding.columns[0].fill == frame["age"].median()  # type: ignore[union-attr]
    wanted = [data.labels.index(label) for label in later["outcome"]]
    assert data.test_y.tolist() == wanted
    same = load(tmp_path, keep, test={"path": str(tmp_path / "later.csv")})
    assert same.fingerprint() == data.fingerprint()
    assert "tested on the 50 rows of" in data.encoding.notes[-1]


def test_numbers_of_a_test_file_are_in_the_training_files_units(tmp_path: Path) -> None:
    frame = patients()[["age", "sex", "stay"]]
    frame.head(40).to_csv(tmp_path / "later.csv", index=False)
    data = load(tmp_path, frame, target="stay", test=str(tmp_path / "later.csv"))
    assert torch.equal(data.test_x, data.x[:40])
    assert torch.equal(data.test_y, data.y[:40])


def test_clients_come_from_the_table_and_the_test_file_needs_none(tmp_path: Path) -> None:
    frame = patients()[["hospital", "age", "outcome"]]
    frame.drop(columns="hospital").head(30).to_csv(tmp_path / "later.csv", index=False)
    settings: dict[str, Any] = {"client": "hospital", "fairness": ["hospital"]}
    data = load(tmp_path, frame, test=str(tmp_path / "later.csv"), **settings)
    assert data.owners == ("Aalborg", "Bergen", "Turku")
    assert data.owner is not None
    assert len(data.owner) == 200
    assert data.groupings[0].names[-1] == "missing"


def test_a_study_finds_a_test_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = patients()[["age", "outcome"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.head(40).to_csv(tmp_path / "later.csv", index=False)
    text = "dataset: {name: table, path: t.csv, target: outcome, test: later.csv}\nclients: 2\n"
    (tmp_path / "study.yaml").write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for test in ("later.csv", "{path: later.csv}"):
        (tmp_path / "study.yaml").write_text(text.replace("later.csv", test))
        [run] = Study.from_file(tmp_path / "study.yaml").runs()
        assert len(run.dataset.load().test_y) == 40


def test_nobody_is_trained_and_tested_on(tmp_path: Path) -> None:
    data = load(tmp_path, patients(), test={"group": "patient"})
    assert not any("patient" in name for name in data.columns)
    train, test = rows_of(data)
    frame = patients()
    groups = frame["patient"]
    assert not set(groups[train.index]) & set(groups[test.index])
    assert 0.15 < len(test) / len(frame) < 0.25
    again = load(tmp_path, patients(), test={"group": "patient"})
    assert again.fingerprint() == data.fingerprint()
    more = load(tmp_path, patients(), test={"group": "patient"}, test_share=0.5)
    assert len(more.test_y) > 0.45 * len(frame)


def test_a_group_with_all_rows_of_a_client_or_class_stays_in_training(tmp_path: Path) -> None:
    frame = patients().assign(hospital="Turku")
    for group in range(len(set(frame["patient"])) // 2):  # whichever group is drawn
        chosen = frame["patient"] == group
        frame["hospital"] = np.where(chosen, "Bergen", "Turku")
        if not chosen.any():
            continue
        data = load(tmp_path, frame, client="hospital", test={"group": "patient"})
        assert data.owner is not None
        assert set(data.owner.tolist()) == {0, 1}


def test_one_large_group_is_not_tested_on_where_smaller_ones_do(tmp_path: Path) -> None:
    frame = patients()
    frame["patient"] = np.where(frame.index < 150, -1, frame["patient"])
    data = load(tmp_path, frame, test={"group": "patient"})
    assert 30 <= len(data.test_y) <= 50


def test_the_latest_rows_are_tested_on(tmp_path: Path) -> None:
    frame = patients()
    for column in ("admitted", "day"):
        drop = ["patient", "day", "admitted"]
        data = load(tmp_path, frame, drop=drop, test={"time": column})
        train, test = rows_of(data)
        assert len(test) == 40
        assert frame[column][train.index].max() < frame[column][test.index].min()


def test_rows_of_one_moment_stay_together(tmp_path: Path) -> None:
    frame = patients().assign(year=2020)
    frame.loc[frame["day"] > 120, "year"] = 2021
    data = load(tmp_path, frame, drop=["day", "admitted"], test={"time": "year"})
    assert len(data.test_y) == 79


def test_the_first_test_day_may_be_stated_also_where_dates_have_a_format(tmp_path: Path) -> None:
    frame = patients()
    since = datetime.date(2024, 6, 1)
    wanted = int((frame["admitted"] >= "2024-06-01").sum())
    settings: dict[str, Any] = {"drop": ["admitted", "day"]}
    data = load(tmp_path, frame, test={"time": "admitted", "from": since}, **settings)
    assert len(data.test_y) == wanted
    frame["admitted"] = pd.to_datetime(frame["admitted"]).dt.strftime("%d/%m/%Y")
    settings["dates"] = {"admitted": "%d/%m/%Y"}
    data = load(tmp_path, frame, test={"time": "admitted", "from": "2024-06-01"}, **settings)
    assert len(data.test_y) == wanted
    assert data.encoding is not None
    assert data.encoding.notes == (f"tested on the {wanted} rows since 2024-06-01 by admitted",)


def test_a_time_that_is_also_learnt_from_is_warned_of(tmp_path: Path) -> None:
    events: list[Event] = []
    load(tmp_path, patients(), events, test={"time": "admitted"}, drop=["day"])
    assert [event.text for event in events if isinstance(event, Warned)] == [
        "t.csv: admitted is also learnt from, and no training row is as late as the test rows;"
        " add drop: [admitted] unless that is meant"
    ]


def test_one_client_is_left_out(tmp_path: Path) -> None:
    frame = patients()
    data = load(tmp_path, frame, client="hospital", test={"client": "Bergen"})
    train, test = rows_of(data)
    assert set(frame["hospital"][test.index]) == {"Bergen"}
    assert len(test) == (frame["hospital"] == "Bergen").sum()
    assert data.owners == ("Aalborg", "Turku")
    assert data.left_out == "Bergen"
    assert data.owner is not None
    whose = [data.owners[code] for code in data.owner]
    assert whose == frame["hospital"][train.index].tolist()
    assert data.encoding is not None
    assert data.encoding.clients == ("Aalborg", "Turku")


def test_every_client_is_left_out_in_turn(tmp_path: Path) -> None:
    table = spec(tmp_path, patients(), client="hospital", test={"client": "each"})
    study = Study(dataset=table, split="by_client", clients=2, centralised=True, rounds=[1, 2])
    labels = label_runs(study.runs())
    assert [label["test"] for label in labels[::2]][:3] == ["Aalborg", "Bergen", "Turku"]
    assert "dataset" not in labels[0]
    assert table_columns(labels) == "test"
    assert row_names(labels)[:2] == ["rounds=1", "rounds=2"]
    assert "centralised, rounds=1" in row_names(labels)
    assert run_ids(labels)[0] == "000-Aalborg-by-client-fedavg-rounds-1"
    assert "tested on Aalborg, Bergen and Turku" in study.question()
    again = Study(**study.to_dict())
    assert again.runs() == study.runs()


def test_the_number_of_clients_that_are_left_is_said(tmp_path: Path) -> None:
    table = spec(tmp_path, patients(), client="hospital", test={"client": "each"})
    study = Study(dataset=table, split="by_client", clients=3)
    message = r"Aalborg: the column hospital, without Aalborg, names 2 clients; set clients: 2"
    with pytest.raises(DataError, match=message):
        load_data(study, None, ignore)


def test_a_client_of_one_class_is_tested_on_with_a_warning(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[frame["hospital"] == "Turku", "outcome"] = "well"
    events: list[Event] = []
    load(tmp_path, frame, events, client="hospital", test={"client": "Turku"})
    warnings = [event.text for event in events if isinstance(event, Warned)]
    assert "all rows of hospital Turku are 'well', so results on them mean little" in warnings[0]


def test_groups_that_are_the_clients_are_left_out_as_clients() -> None:
    with pytest.raises(StudyError, match=r"hospital says whose a row is; .*write {client: each}"):
        Source.build(
            {
                "name": "table",
                "path": "t.csv",
                "target": "outcome",
                "client": "hospital",
                "test": {"group": "hospital"},
            }
        )


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (0.3, "a share is test_share: 0.3"),
        ({}, "expected one of path, group, time, client"),
        ({"grup": "patient"}, "did you mean group"),
        ({"group": "patient", "time": "day"}, "expected one of"),
        ({"group": "patient", "from": 3}, "from goes with time"),
        ({"group": ["patient"]}, "expected a text"),
        ({"client": "Turku"}, "no column says whose a row is; add client: column"),
        ("", "path is empty"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_at_once(test: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Source.build({"name": "table", "path": "t.csv", "target": "outcome", "test": test})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test": "nowhere.csv"}, "nowhere.csv does not exist"),
        ({"test": "Turku"}, "there is no file .*Turku; to choose rows of the table"),
        ({"test": {"group": "pateint"}}, "did you mean patient"),
        ({"test": {"time": "sex"}}, "time needs a column of dates or numbers; sex holds '[fm]'"),
        ({"test": {"time": "day", "from": 1000}}, "no row to test on; day goes from 0 to 199"),
        ({"test": {"time": "day", "from": -5}}, "no row to train on"),
        ({"test": {"time": "day", "from": "May"}}, "day holds a number; from is 'May'"),
        ({"test": {"time": "admitted", "from": 3}}, "admitted holds a date such as 2025-01-01"),
        ({"test": {"time": "one"}}, "all rows have the same one"),
        ({"test": {"group": "one"}}, "all rows have the same one"),
        ({"test": {"group": "gaps"}}, "10 rows have no gaps"),
        ({"test": {"time": "gaps"}}, "10 rows have no gaps"),
        ({"test": {"group": "outcome"}}, "outcome is the target"),
        ({"test": {"client": "Turkku"}, "client": "hospital"}, "did you mean Turku"),
        ({"test": {"client": "1"}, "client": "one"}, "nobody else is left to train on"),
        ({"test": {"client": "each"}, "client": "hospital"}, "name one client here"),
        ({"test": {"time": "late"}, "client": "hospital"}, "the client Turku would be test rows"),
        ({"test": {"time": "ill"}}, "all rows with the outcome 'ill' would be test rows"),
        ({"test": {"time": "day", "from": 199}}, "all 1 test rows are"),
        ({"test": {"time": "day", "from": 199}, "target": "stay"}, "the same stay, so R2"),
        ({"test": {"time": "day"}, "test_share": 2}, "expected a test share above 0"),
    ],
)
def test_test_rows_that_cannot_be_are_refused_in_one_line(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    frame = patients().assign(one=1, gaps=1.0)
    frame.loc[:9, "gaps"] = None
    frame["late"] = (frame["hospital"] == "Turku").astype(int)
    frame["ill"] = (frame["outcome"] == "ill").astype(int)
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, frame, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": ["sex", "age"]}, r"later.csv lacks columns that t.csv has: age, sex;"),
        ({"drop": ["outcome"]}, r"lacks columns that t.csv has: outcome"),
        ({"outcome": "dead"}, "later.csv: no training row has the outcome 'dead'"),
        ({"outcome": None}, "later.csv: no row has a outcome"),
        ({"outcome": "ill"}, "all 20 test rows are 'ill'"),
        ({"age": "old"}, "t.csv with later.csv: column age: expected a number, got 'old'"),
        ({"rows": 0}, "later.csv holds no rows to test on"),
    ],
)
def test_a_test_file_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    later = patients(20)
    for column, value in change.items():
        if column == "drop":
            later = later.drop(columns=value)
        elif column == "rows":
            later = later.head(value)
        else:
            later = later.assign(**{column: value})
    later.to_csv(tmp_path / "later.csv", index=False)
    with pytest.raises(DataError, match=message):
        load(tmp_path, patients(), test=str(tmp_path / "later.csv"))
