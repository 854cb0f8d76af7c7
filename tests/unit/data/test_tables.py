"""A user's table, from its file to a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.core.errors import DataError
from tacit.core.events import Event, Warned
from tacit.data.dataset import Dataset
from tacit.data.datasets import Source
from tacit.data.encoding import Encoding
from tacit.data.holdout import split_off_test
from tacit.data.public import align


def patients(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "hospital": rng.choice(["north", "south", "east"], rows, p=[0.5, 0.3, 0.2]),
            "age": rng.normal(60, 10, rows).round(1),
            "sex": rng.choice(["f", "m"], rows),
            "admitted": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 700, rows), "D"),
        }
    )
    frame["stay"] = (frame["age"] / 10 + rng.normal(0, 1, rows)).round(2)
    frame["outcome"] = np.where(frame["age"] > 60, "ill", "well")
    frame.loc[::7, "age"] = None
    return frame


def load(frame: pd.DataFrame, folder: Path, target: str = "outcome", **settings: Any) -> Dataset:
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    spec = {"name": "table", "path": str(path), "target": target, **settings}
    return Source.build(spec).load()


def warnings(frame: pd.DataFrame, folder: Path, **settings: Any) -> list[str]:
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    events: list[Event] = []
    source = Source.build({"name": "table", "path": str(path), "target": "y", **settings})
    source.load(None, events.append)
    return [event.text for event in events if isinstance(event, Warned)]


def test_text_dates_and_gaps_become_features_fitted_on_the_training_rows_alone(
    tmp_path: Path,
) -> None:
    data = load(patients(), tmp_path)
    assert data.encoding is not None
    assert data.columns == data.encoding.names
    assert data.x.shape == (96, len(data.columns))
    assert data.frame is not None
    assert torch.equal(data.encoding.apply(data.frame), torch.cat([data.x, data.test_x]))
    ages = data.frame["age"].iloc[:96]
    assert data.encoding.columns[1].fill == ages.median()  # type: ignore[union-attr]
    assert abs(data.x[:, data.columns.index("age")].mean()) < 1e-5


def test_semicolons_and_decimal_commas_say_the_same_as_commas_and_points(tmp_path: Path) -> None:
    frame = patients()
    usual = load(frame, tmp_path)
    files: dict[str, dict[str, Any]] = {
        "a.csv": {"sep": ";", "decimal": ","},
        "b.csv": {"sep": ";"},
        "c.csv.gz": {"sep": ";"},
    }
    for name, marks in files.items():
        path = tmp_path / name
        frame.to_csv(path, index=False, **marks)
        data = Source.build({"name": "table", "path": str(path), "target": "outcome"}).load()
        torch.testing.assert_close(data.x, usual.x)


@pytest.mark.parametrize(
    ("values", "task", "labels"),
    [
        (["a", "b"] * 30, "classification", ("a", "b")),
        ([True, False] * 30, "classification", ("False", "True")),
        ([3, 1, 2] * 20, "classification", ("1", "2", "3")),
        ([3.0, None, 2.0] * 20, "classification", ("2", "3")),
        (list(range(60)), "regression", ()),
        ([k / 7 for k in range(60)], "regression", ()),
    ],
    ids=["text", "boolean", "few integers", "few with gaps", "many integers", "floats"],
)
def test_the_task_follows_from_the_target(
    tmp_path: Path, values: list[Any], task: str, labels: tuple[str]
) -> None:
    data = load(pd.DataFrame({"a": np.arange(60), "y": values}), tmp_path, "y")
    assert (data.task, data.labels) == (task, labels)


def test_a_numeric_target_may_be_told_what_it_is(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(60), "y": np.arange(60) % 3})
    assert load(frame, tmp_path, "y", task="regression").task == "regression"
    many = frame.assign(y=np.arange(60) % 30)
    assert load(many, tmp_path, "y", task="classification").classes == 30
    with pytest.raises(DataError, match="expected a number, got 'x'"):
        load(frame.assign(y="x"), tmp_path, "y", task="regression")


def test_what_was_guessed_or_left_out_is_said_and_noted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(60) / 2, "y": np.arange(60) % 3})
    message = "3 different whole numbers and is taken for classes"
    assert message in warnings(frame, tmp_path)[0]
    measured = frame.assign(y=frame["a"] / 7)
    assert "taken for a measurement" in warnings(measured, tmp_path)[0]
    assert warnings(frame, tmp_path, task="classification") == []
    gaps = frame.assign(y=[None] * 5 + ["x"] * 25 + ["z"] * 30, b=1)
    assert warnings(gaps, tmp_path) == ["t.csv: 5 rows without y were left out"]
    data = load(gaps, tmp_path, "y")
    assert len(data.y) + len(data.test_y) == 55
    assert data.encoding is not None
    assert data.encoding.notes == ("5 rows without y were left out",)


def test_a_regressions_outcomes_are_in_units_of_the_training_rows(tmp_path: Path) -> None:
    frame = patients()
    data = load(frame, tmp_path, "stay")
    assert (data.task, data.outputs, data.classes) == ("regression", 1, 0)
    assert abs(data.y.mean()) < 1e-5
    assert data.y.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    back = torch.cat([data.y, data.test_y]).double() * data.target_spread + data.target_centre
    assert sorted(back.numpy().round(2)) == pytest.approx(sorted(frame["stay"]), abs=0.011)


def test_a_regression_is_divided_by_tenths_of_its_outcomes(tmp_path: Path) -> None:
    data = load(patients(200), tmp_path, "stay")
    assert data.groups.dtype == torch.int64
    assert data.groups.unique().tolist() == list(range(10))
    sizes = data.groups.bincount()
    assert sizes.max() - sizes.min() <= 6
    assert (data.y[data.groups == 9].min() >= data.y[data.groups == 8].max()).item()
    assert len(data.group_names) == 10
    labels = load(patients(), tmp_path)
    assert labels.group_names == labels.labels
    assert labels.groups is labels.y


def test_the_client_column_says_whose_each_training_row_is_and_is_no_feature(
    tmp_path: Path,
) -> None:
    frame = patients()
    data = load(frame, tmp_path, client="hospital")
    assert data.owners == ("east", "north", "south")
    assert data.owner is not None
    assert len(data.owner) == len(data.y)
    assert not any("hospital" in name for name in data.columns)
    assert data.frame is not None
    whose = frame["hospital"].iloc[data.frame.index[: len(data.y)]]
    assert [data.owners[code] for code in data.owner] == whose.tolist()


def test_clients_with_numbers_are_in_their_order_and_nobody_is_left_without_a_training_row(
    tmp_path: Path,
) -> None:
    frame = pd.DataFrame({"a": np.arange(60.0), "who": [10, 9, 2] * 20, "y": ["p", "q"] * 30})
    frame.loc[59, "who"] = 1
    for target in ("y", "a"):
        data = load(frame.assign(b=1.0), tmp_path, target, client="who")
        assert data.owners == ("1", "2", "9", "10")
        assert data.owner is not None
        assert data.owner.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client": "hopsital"}, "did you mean hospital"),
        ({"dates": {"admited": "%Y"}}, "did you mean admitted"),
        ({"categories": ["sx"]}, "has no column 'sx'"),
        ({"drop": ["outcome"]}, "outcome is the target"),
        ({"client": "outcome"}, "outcome is the target"),
        ({"drop": ["sex"], "categories": ["sex"]}, "sex is not a feature"),
        ({"client": "note"}, "rows do not say in note whose they are"),
        ({"target": "note"}, "no row has a note"),
        ({"dates": {"admitted": "%d/%m/%Y"}}, "expected a date of the form %d/%m/%Y"),
    ],
)
def test_settings_that_do_not_fit_the_table_are_refused_in_one_line(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(patients().assign(note=None), tmp_path, **settings)
    assert "\n" not in str(caught.value)


def test_a_public_table_is_encoded_with_the_studys_levels_and_units(tmp_path: Path) -> None:
    data = load(patients(), tmp_path)
    frame = patients(60).assign(sex="m", hospital="abroad")
    frame = frame[["outcome", "stay", "admitted", "sex", "age", "hospital"]]
    public = load(frame, tmp_path)
    x, y = align(public, data)
    assert data.encoding is not None
    assert x.shape == (60, len(data.columns))
    assert (x[:, data.columns.index("sex = m")] == 1).all()
    hospitals = [k for k, name in enumerate(data.columns) if name.startswith("hospital")]
    assert (x[:, hospitals] == 0).all()
    assert torch.equal(x, data.encoding.apply(public.frame))  # type: ignore[arg-type]
    public_y = torch.cat([public.y, public.test_y])
    assert [data.labels[k] for k in y] == [public.labels[k] for k in public_y]
    without = load(frame.drop(columns="sex"), tmp_path)
    with pytest.raises(DataError, match="do not fit the study's: the rows have no column 'sex'"):
        align(without, data)


def test_public_outcomes_are_in_the_studys_units(tmp_path: Path) -> None:
    frame = patients()
    longer = frame["stay"].head(60) + 1
    data = load(frame, tmp_path, "stay")
    public = load(frame.head(60).assign(stay=longer), tmp_path, "stay")
    _, y = align(public, data)
    back = y.double() * data.target_spread + data.target_centre
    assert sorted(back.numpy()) == pytest.approx(sorted(longer), abs=1e-4)
    with pytest.raises(DataError, match=r"are for classification, the study's for regression"):
        align(load(frame, tmp_path), data)


def test_data_tell_apart_by_their_fingerprint_also_in_owners_and_units(tmp_path: Path) -> None:
    frame = patients()
    doubled = frame.assign(stay=frame["stay"] * 2)
    datasets = [
        load(frame, tmp_path, drop=["hospital"]),
        load(frame, tmp_path, client="hospital"),
        load(frame, tmp_path, "stay", drop=["hospital"]),
        load(doubled, tmp_path, "stay", drop=["hospital"]),
    ]
    assert len({dataset.fingerprint() for dataset in datasets}) == 4


def test_arrays_are_scaled_by_their_training_rows_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (50, 2))
    data = split_off_test("arrays", x, np.arange(50) % 2)
    assert data.x.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert data.test_x.mean(0).abs().max() > 1e-3
    assert data.centre is not None
    assert data.centre.tolist() != pytest.approx(x.mean(0).tolist(), abs=1e-6)


def test_an_owner_of_one_row_keeps_it_for_training(tmp_path: Path) -> None:
    frame = patients()
    rows = np.arange(len(frame))
    for row in rows:  # wherever the single row lies, also where the test would be drawn
        hospitals = np.where(rows == row, "lonely", "large")
        data = load(frame.assign(hospital=hospitals), tmp_path, client="hospital")
        assert data.owner is not None
        assert set(data.owner.tolist()) == {0, 1}


def test_only_numbers_and_days_have_moments() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, None, 5.0], "c": ["x", "y", "x"], "d": ["2024-01-01", None, "2024-06-01"]}
    )
    encoding = Encoding.fit(frame)
    centre, spread = encoding.moments()
    for feature, name in enumerate(encoding.names):
        is_scaled = (centre[feature].item(), spread[feature].item()) != (0.0, 1.0)
        assert is_scaled == (name in ("a", "d")), name


def test_public_rows_of_some_classes_keep_their_meaning(tmp_path: Path) -> None:
    data = load(pd.DataFrame({"x": range(60), "y": ["a", "b", "c"] * 20}), tmp_path, "y")
    public = load(pd.DataFrame({"x": range(40), "y": ["b", "c"] * 20}), tmp_path, "y")
    _, y = align(public, data)
    assert sorted(set(y.tolist())) == [1, 2]


def test_a_class_called_none_is_a_class_and_na_is_a_gap_also_in_new_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": ["p", "NA", "q"] * 20, "y": ["None", "some"] * 30})
    data = load(frame, tmp_path, target="y")
    assert data.labels == ("None", "some")
    assert data.encoding is not None
    assert set(data.columns) == {"x = p", "x = q", "x is missing"}
    gaps = pd.DataFrame({"x": ["NA", None]})
    assert data.encoding.apply(gaps).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_all_columns_that_need_fixing_are_named_at_once(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "who": [f"p{k}" for k in range(40)],
            "seen": ["31/12/2020", "01/02/2021"] * 20,
            "dose": [f"{k % 7},{k % 10}5" for k in range(40)],
            "born": [f"{k % 28 + 1} Jan 1970" for k in range(40)],
            "y": ["a", "b"] * 20,
        }
    )
    with pytest.raises(DataError) as refused:
        load(frame, tmp_path, target="y")
    message = str(refused.value)
    assert "as names and ids do" in message
    assert "state their format" in message
    assert "looks like numbers such as" in message
    assert "looks like dates such as" in message
    assert "\n" not in message


def test_lists_and_the_year_9999_are_refused_in_one_line(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"l": [[1, 2]] * 20, "d": ["2020-01-01", "9999-12-31"] * 10, "y": ["a", "b"] * 10}
    )
    frame.to_parquet(tmp_path / "odd.parquet")
    source = Source.build({"name": "table", "path": str(tmp_path / "odd.parquet"), "target": "y"})
    with pytest.raises(DataError, match=r"column l holds lists.*column d holds dates too far away"):
        source.load()


def test_float_classes_come_back_as_floats(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(40), "y": [0.5, 1.5] * 20})
    data = load(frame, tmp_path, target="y", task="classification")
    assert data.encoding is not None
    assert data.encoding.target is not None
    assert data.encoding.target.decode(torch.eye(2)) == [0.5, 1.5]
