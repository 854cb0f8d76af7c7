"""Groups that results are told by, and the class that is positive."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tacit.core.errors import DataError, StudyError
from tacit.data.dataset import Dataset
from tacit.data.datasets import Source
from tacit.data.groupings import Grouping, group_rows


def group(values: list[Any] | pd.Series[Any], **settings: Any) -> Grouping:
    column = pd.Series(values)
    rows = np.arange(len(column))
    return group_rows("c", column, train=rows, test=rows[:0], **settings)


def members(grouping: Grouping) -> list[str]:
    return [grouping.names[code] for code in torch.cat([grouping.train, grouping.test])]


def table(folder: Path, frame: pd.DataFrame, target: str = "y", **settings: Any) -> Dataset:
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    return Source.build({"name": "table", "path": str(path), "target": target, **settings}).load()


def people(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "dose": rng.normal(0, 1, rows),
            "sex": rng.choice(["f", "m"], rows),
            "born": rng.choice(["03/12/1950", "25/01/1980"], rows),
            "ward": rng.choice(["A", "B"], rows),
            "y": ["ill"] * (rows // 4) + ["well"] * (rows - rows // 4),
        }
    )


def test_every_level_of_text_is_a_group_and_gaps_are_one_too() -> None:
    grouping = group(["b", None, "a", "b"])
    assert grouping.names == ("a", "b", "missing")
    assert members(grouping) == ["b", "missing", "a", "b"]


def test_few_numbers_are_groups_in_their_order_and_truth_values_too() -> None:
    assert group([10, 9, 2, 9]).names == ("2", "9", "10")
    assert group([1.0, np.nan, 2.5]).names == ("1", "2.5", "missing")
    assert group([True, False]).names == ("False", "True")


def test_many_numbers_become_quarters_of_the_training_rows() -> None:
    values = pd.Series([*range(1, 101), 1000, -5])
    rows = np.arange(102)
    grouping = group_rows("age", values, train=rows[:100], test=rows[100:])
    assert grouping.names == ("up to 25", "25 to 50", "50 to 75", "over 75")
    assert grouping.train.bincount().tolist() == [25, 25, 25, 25]
    assert [grouping.names[code] for code in grouping.test] == ["over 75", "up to 25"]


def test_numbers_of_which_most_are_equal_have_fewer_bands() -> None:
    grouping = group([0] * 80 + list(range(1, 21)))
    assert grouping.names == ("up to 0", "over 0")
    assert group([7] * 80 + list(range(-10, 0))).names == ("up to -1", "over -1")


def test_dates_become_bands_also_where_their_format_is_stated() -> None:
    days = pd.date_range("2024-01-01", periods=40).strftime("%d/%m/%Y").to_list()
    grouping = group(days, format="%d/%m/%Y")
    assert grouping.names[0] == "up to 2024-01-10"
    assert grouping.names[-1] == "over 2024-01-30"
    with pytest.raises(DataError, match=r"fairness: .*state their format"):
        group(days)


def test_rare_levels_are_one_group_together() -> None:
    letters = [letter for letter in "abcdefghijklmnop" for _ in range(3)]
    grouping = group([*letters, "other", None])
    assert len(grouping.names) == 13
    assert grouping.names[-2:] == ("other", "missing")
    assert members(grouping)[-2:] == ["other", "missing"]
    assert members(grouping).count("other") == 5 * 3 + 1


def test_names_of_people_are_no_groups() -> None:
    with pytest.raises(DataError, match="50 different texts in 50 rows, too many"):
        group([f"person {k}" for k in range(50)])


def test_a_table_is_told_by_features_dropped_columns_and_the_client(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"drop": ["born"], "dates": {"born": "%d/%m/%Y"}, "client": "ward"}
    data = table(tmp_path, people(), fairness=["sex", "born", "ward"], **settings)
    sex, born, ward = data.groupings
    assert [sex.column, born.column, ward.column] == ["sex", "born", "ward"]
    assert sex.names == ("f", "m")
    assert born.names == ("up to 1950-12-03", "over 1950-12-03")
    assert data.owner is not None
    assert torch.equal(ward.train, data.owner)
    assert len(sex.test) == len(data.test_y)
    is_male = data.test_x[:, data.columns.index("sex = m")]
    assert torch.equal(sex.test.float(), is_male)
    assert not any("born" in name for name in data.columns)
    assert pickle.loads(pickle.dumps(data)).groupings[1].names == born.names


def test_groups_change_nothing_of_what_is_learnt(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"drop": ["born"]}
    plain = table(tmp_path, people(), **settings)
    told = table(tmp_path, people(), fairness=["sex"], positive="ill", **settings)
    assert plain.groupings == ()
    assert told.fingerprint() == plain.fingerprint()


def test_a_column_that_does_not_exist_or_is_the_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean sex"):
        table(tmp_path, people(), fairness=["sxe"], drop=["born"])
    with pytest.raises(DataError, match="leave it out of fairness"):
        table(tmp_path, people(), fairness=["y"], drop=["born"])


@pytest.mark.parametrize(
    ("labels", "counts", "positive"),
    [
        (("0", "1"), (10, 90), 1),
        (("-1", "1"), (10, 90), 1),
        (("10", "9"), (10, 90), 0),
        (("False", "True"), (10, 90), 1),
        (("No", "Yes"), (10, 90), 1),
        (("neg", "pos"), (10, 90), 1),
        (("ill", "well"), (10, 90), 0),
        (("ill", "well"), (90, 10), 1),
        (("a", "b"), (50, 50), 1),
    ],
)
def test_the_positive_class_is_guessed_from_the_labels_and_else_the_rarer_one(
    labels: tuple[str, ...], counts: tuple[int, int], positive: int
) -> None:
    y = torch.tensor([0] * counts[0] + [1] * counts[1])
    x = torch.zeros(len(y), 1)
    assert Dataset("d", x, y, x, y, labels).positive_class == positive
    assert Dataset("d", x, y, x, y, labels, positive=1 - positive).positive_class == 1 - positive


def test_three_classes_and_numbers_have_no_positive_class() -> None:
    assert Source.build("iris").load().positive_class is None
    assert Source.build("diabetes").load().positive_class is None
    cancer = Source.build("breast_cancer").load()
    assert cancer.labels[cancer.positive_class or 0] == "malignant"


def test_the_positive_class_is_named_by_its_label(tmp_path: Path) -> None:
    drop = ["born"]
    assert table(tmp_path, people(), drop=drop, positive="well").positive == 1
    numbers = people().assign(y=np.arange(200) % 2)
    assert table(tmp_path, numbers, drop=drop, positive=0).positive == 0
    words = people().assign(y=["no", "yes"] * 100)
    assert table(tmp_path, words, drop=drop, positive=False).positive == 0  # YAML's no


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positive": "wel"}, "no class 'wel'; did you mean well"),
        ({"positive": "f", "target": "dose"}, "dose is a number to predict"),
        ({"positive": "a", "target": "z"}, "z has 4 classes"),
    ],
)
def test_a_positive_class_that_is_none_of_two_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    frame = people().assign(z=["a", "b", "c", "d"] * 50)
    with pytest.raises(DataError, match=message):
        table(tmp_path, frame, drop=["born"], **settings)


def test_one_column_is_written_as_a_list() -> None:
    with pytest.raises(StudyError, match=r"fairness: expected a list of texts.*write \[sex\]"):
        Source.build({"name": "table", "path": "t.csv", "target": "y", "fairness": "sex"})
