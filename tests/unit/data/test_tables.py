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
    frame.to_csv(folder / "t.csv", index=False)
    return Source.build(
        {"name": "table", "path": str(folder / "t.csv"), "target": target, **settings}
    ).load()


def said(frame: pd.DataFrame, folder: Path, **settings: Any) -> list[str]:
    frame.to_csv(folder / "t.csv", index=False)
    heard: list[Event] = []
    source = Source.build({"name": "table", "path": str(folder / "t.csv"), **settings})
    source.load(None, heard.append)
    return [event.text for event in heard if isinstance(event, Warned)]


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
    for name, marks in {
        "a.csv": {"sep": ";", "decimal": ","},
        "b.csv": {"sep": ";"},
        "c.csv.gz": {"sep": ";"},
    }.items():
        frame.to_csv(tmp_path / name, index=False, **marks)
        data = Source.build(
            {"name": "table", "path": str(tmp_path / name), "target": "outcome"}
        ).load()
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
    assert (
        load(frame.assign(y=np.arange(60) % 30), tmp_path, "y", task="classification").classes == 30
    )
    with pytest.raises(DataError, match="expected a number, got 'x'"):
        load(frame.assign(y="x"), tmp_path, "y", task="regression")


def test_what_was_guessed_or_left_out_is_said_and_noted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(60), "y": np.arange(60) % 3})
    assert (
        "3 different whole numbers and is taken for classes" in said(frame, tmp_path, target="y")[0]
    )
    assert (
        "taken for a measurement" in said(frame.assign(y=frame["a"] / 7), tmp_path, target="y")[0]
    )
    assert said(frame, tmp_path, target="y", task="classification") == []
    gaps = frame.assign(y=np.where(frame["a"] < 5, None, "x"), b=1).assign(
        y=lambda f: f["y"].where(f["a"] < 30, "z")
    )
    assert said(gaps, tmp_path, target="y") == ["t.csv: 5 rows without y were left out"]
    data = load(gaps, tmp_path, "y")
    assert len(data.y) + len(data.test_y) == 55
    assert data.encoding is not None
    assert data.encoding.notes == ("5 rows without y were left out",)


def test_a_regressions_outcomes_are_in_units_of_the_training_rows(tmp_path: Path) -> None:
    frame = patients()
    data = load(frame, tmp_path, "stay")
    assert (data.task, data.score, data.outputs, data.classes) == ("regression", "r2", 1, 0)
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
        ({"drop": ["sex"], "categories": ["sex"]}, "sex is no feature"),
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
    own = load(patients(), tmp_path)
    other = patients(60).assign(sex="m", hospital="abroad")[
        ["outcome", "stay", "admitted", "sex", "age", "hospital"]
    ]
    public = load(other, tmp_path)
    x, y = align(public, own)
    assert own.encoding is not None
    assert x.shape == (60, len(own.columns))
    assert (x[:, own.columns.index("sex = m")] == 1).all()
    assert (
        x[:, [k for k, name in enumerate(own.columns) if name.startswith("hospital")]] == 0
    ).all()
    assert torch.equal(x, own.encoding.apply(public.frame))  # type: ignore[arg-type]
    assert [own.labels[k] for k in y] == [
        public.labels[k] for k in torch.cat([public.y, public.test_y])
    ]
    with pytest.raises(DataError, match="do not fit the study's: the rows have no column 'sex'"):
        align(load(other.drop(columns="sex"), tmp_path), own)


def test_public_outcomes_are_in_the_studys_units(tmp_path: Path) -> None:
    frame = patients()
    own, public = (
        load(frame, tmp_path, "stay"),
        load(frame.head(60).assign(stay=lambda f: f["stay"] + 1), tmp_path, "stay"),
    )
    _, y = align(public, own)
    back = y.double() * own.target_spread + own.target_centre
    assert sorted(back.numpy()) == pytest.approx(sorted(frame["stay"].head(60) + 1), abs=1e-4)
    with pytest.raises(DataError, match=r"are for classification, the study's for regression"):
        align(load(frame, tmp_path), own)


def test_data_tell_apart_by_their_fingerprint_also_in_owners_and_units(tmp_path: Path) -> None:
    frame = patients()
    prints = [
        load(frame, tmp_path, drop=["hospital"]).fingerprint(),
        load(frame, tmp_path, client="hospital").fingerprint(),
        load(frame, tmp_path, "stay", drop=["hospital"]).fingerprint(),
        load(
            frame.assign(stay=frame["stay"] * 2), tmp_path, "stay", drop=["hospital"]
        ).fingerprint(),
    ]
    assert len(set(prints)) == 4


def test_arrays_are_scaled_by_their_training_rows_alone() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(5, 3, (50, 2)), np.arange(50) % 2
    made = split_off_test("arrays", x, y)
    assert made.x.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert made.test_x.mean(0).abs().max() > 1e-3
    assert made.centre is not None
    assert made.centre.tolist() != pytest.approx(x.mean(0).tolist(), abs=1e-6)


def test_an_owner_of_one_row_keeps_it_for_training(tmp_path: Path) -> None:
    frame = patients()
    for place in range(
        len(frame)
    ):  # wherever the single row lies, also where the test would be drawn
        alone = frame.assign(
            hospital=["lonely" if k == place else "large" for k in range(len(frame))]
        )
        made = load(alone, tmp_path, client="hospital")
        assert made.owner is not None
        assert set(made.owner.tolist()) == {0, 1}


def test_only_numbers_and_days_have_moments() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, None, 5.0], "c": ["x", "y", "x"], "d": ["2024-01-01", None, "2024-06-01"]}
    )
    encoding = Encoding.fit(frame)
    centre, spread = encoding.moments()
    plain = [name for name in encoding.names if name not in ("a", "d")]
    for name, middle, width in zip(encoding.names, centre.tolist(), spread.tolist(), strict=True):
        assert ((middle, width) == (0.0, 1.0)) == (name in plain), name


def test_public_rows_of_some_classes_keep_their_meaning(tmp_path: Path) -> None:
    mine = load(pd.DataFrame({"x": range(60), "y": ["a", "b", "c"] * 20}), tmp_path, target="y")
    public = load(pd.DataFrame({"x": range(40), "y": ["b", "c"] * 20}), tmp_path, target="y")
    _, y = align(public, mine)
    assert sorted(set(y.tolist())) == [1, 2]


def test_a_class_called_none_is_a_class_and_na_is_a_gap_also_in_new_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": ["p", "NA", "q"] * 20, "y": ["None", "some"] * 30})
    made = load(frame, tmp_path, target="y")
    assert made.labels == ("None", "some")
    assert made.encoding is not None
    assert set(made.columns) == {"x = p", "x = q", "x is missing"}
    assert made.encoding.apply(pd.DataFrame({"x": ["NA", None]})).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_all_columns_that_need_mending_are_named_at_once(tmp_path: Path) -> None:
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
    for part in (
        "as names and ids do",
        "state their format",
        "looks like numbers such as",
        "looks like dates such as",
    ):
        assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lists_and_the_year_9999_are_refused_in_one_line(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"l": [[1, 2]] * 20, "d": ["2020-01-01", "9999-12-31"] * 10, "y": ["a", "b"] * 10}
    )
    frame.to_parquet(tmp_path / "odd.parquet")
    source = Source.build({"name": "table", "path": str(tmp_path / "odd.parquet"), "target": "y"})
    with pytest.raises(DataError, match=r"column l holds lists.*column d holds dates too far away"):
        source.load()


def test_float_classes_come_back_as_floats(tmp_path: Path) -> None:
    made = load(
        pd.DataFrame({"x": range(40), "y": [0.5, 1.5] * 20}),
        tmp_path,
        target="y",
        task="classification",
    )
    assert made.encoding is not None
    assert made.encoding.target is not None
    assert made.encoding.target.decode(torch.eye(2)) == [0.5, 1.5]
