"""What may mislead in a table is said in one line, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit.core.events import Event, Warned
from tacit.data.datasets import Source


def people(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(60, 10, rows),
            "visits": rng.integers(0, 30, rows),
            "ward": rng.choice(["A", "B"], rows),
            "died": rng.choice(["no", "yes"], rows, p=[0.8, 0.2]),
        }
    )


def warnings(folder: Path, frame: pd.DataFrame, target: str = "died", **settings: Any) -> list[str]:
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    return told(path, target, **settings)


def told(path: Path, target: str, **settings: Any) -> list[str]:
    events: list[Event] = []
    spec = {"name": "table", "path": str(path), "target": target, **settings}
    data = Source.build(spec).load(None, events.append)
    lines = [event.text for event in events if isinstance(event, Warned)]
    texts = [line.removeprefix(f"{path.name}: ") for line in lines]
    assert data.encoding is not None
    assert set(texts) <= set(data.encoding.notes)  # a report says them too
    return texts


def test_a_usual_table_has_no_warnings(tmp_path: Path) -> None:
    assert warnings(tmp_path, people()) == []
    assert warnings(tmp_path, people(30)) == []


def test_rows_that_are_both_tested_and_trained_on_are_counted(tmp_path: Path) -> None:
    frame = people(100).assign(ward=lambda rows: rows["ward"].where(rows.index > 9))
    frame.head(20).to_csv(tmp_path / "later.csv", index=False)
    path = str(tmp_path / "later.csv")
    assert warnings(tmp_path, frame, test=path) == [
        "20 of 20 test rows also occur among the training rows (with the same died), so"
        " results may look better than they are"
    ]
    later = people(120).tail(30)
    both = pd.concat([later, frame.head(3).assign(died=["yes", "no", "no"])])
    both.to_csv(tmp_path / "later.csv", index=False)
    same = int((frame["died"].head(3) == ["yes", "no", "no"]).sum())
    [text] = [text for text in warnings(tmp_path, frame, test=path) if "also occur" in text]
    assert text.startswith("3 of 33 test rows also occur among the training rows")
    assert f"({same} of them" in text


def test_a_few_repeated_rows_of_many_are_noted_without_a_warning(tmp_path: Path) -> None:
    others = people(200).assign(age=lambda rows: rows["age"] + 0.001)
    later = pd.concat([others, people(100).head(2)])
    later.to_csv(tmp_path / "later.csv", index=False)
    people(100).to_csv(tmp_path / "t.csv", index=False)
    events: list[Event] = []
    spec = {"name": "table", "path": str(tmp_path / "t.csv"), "target": "died"}
    data = Source.build(spec | {"test": str(tmp_path / "later.csv")}).load(None, events.append)
    assert data.encoding is not None
    assert data.encoding.notes[-1].startswith("2 of 202 test rows also occur")
    assert not events


def test_one_repeated_row_is_one(tmp_path: Path) -> None:
    frame = people(100)
    pd.concat([people(120).tail(20), frame.head(1)]).to_csv(tmp_path / "later.csv", index=False)
    [text] = warnings(tmp_path, frame, test=str(tmp_path / "later.csv"))
    assert text.startswith("1 of 21 test rows also occurs")


@pytest.mark.parametrize(
    ("name", "numbers", "rows"),
    [
        ("who", np.arange(200), 200),
        ("who", np.random.default_rng(0).permutation(np.arange(10_000, 99_999))[:200], 200),
        ("patient_id", np.arange(200) * 977 % 100_003, 200),
        ("PatientID", np.arange(30) * 977, 30),
        ("case no.", np.arange(30) * 977.0, 30),
    ],
)
def test_numbers_that_tell_rows_apart_look_like_ids(
    tmp_path: Path, name: str, numbers: Any, rows: int
) -> None:
    [text] = warnings(tmp_path, people(rows).assign(**{name: numbers}))
    assert text.startswith(f"{name} looks like an id:")
    assert f"add drop: [{name}]" in text


@pytest.mark.parametrize(
    ("name", "numbers", "rows"),
    [
        ("dose", np.random.default_rng(0).random(200), 200),
        ("income", np.random.default_rng(0).lognormal(9, 1, 200).round(), 200),
        ("who", np.arange(30), 30),
        ("postcode", np.random.default_rng(0).integers(1000, 1100, 200), 200),
        ("code", np.random.default_rng(0).integers(0, 9, 200), 200),
        ("identity_score", np.arange(30), 30),
    ],
)
def test_measurements_and_small_tables_do_not_look_like_ids(
    tmp_path: Path, name: str, numbers: Any, rows: int
) -> None:
    assert warnings(tmp_path, people(rows).assign(**{name: numbers})) == []


def test_several_ids_are_one_line(tmp_path: Path) -> None:
    frame = people().assign(a=np.arange(200), b=np.arange(200, 400))
    [text] = warnings(tmp_path, frame)
    assert text.startswith("a, b look like ids:")
    assert "drop: [a, b]" in text


def test_spellings_that_differ_in_case_spaces_or_the_form_of_a_letter_are_named(
    tmp_path: Path,
) -> None:
    frame = people()
    frame["died"] = np.where(np.arange(200) % 3, frame["died"], "Yes")
    frame["ward"] = np.resize(["cafe\u0301", "caf\u00e9", "B 1", "b1"], 200)
    [text] = warnings(tmp_path, frame)
    assert text.startswith("spellings that count as different: died: 'Yes' and 'yes'; ward: ")
    assert "'B 1' and 'b1'" in text
    assert text.count("caf") == 2


def test_two_columns_of_one_name_are_said(tmp_path: Path) -> None:
    for name, separator in (("t.csv", ","), ("t.csv", ";"), ("t.tsv", "\t")):
        frame = people().rename(columns={"visits": "age"})
        frame.to_csv(tmp_path / name, index=False, sep=separator)
        texts = told(tmp_path / name, "died")
        assert any(
            "two columns are called age; the second is read as age.1" in text for text in texts
        )


@pytest.mark.parametrize("code", ["number", "text", "with mistakes", "several levels"])
def test_a_feature_that_tells_the_class_is_named(tmp_path: Path, code: str) -> None:
    frame = people(500)
    died = frame["died"] == "yes"
    columns = {
        "number": died.astype(int),
        "text": died.map({True: "dead", False: "alive"}),
        "with mistakes": died.astype(int).where(frame.index != 3, 1 - died.astype(int)),
        "several levels": np.where(died, "dead", np.resize(["home", "ward"], 500)),
    }
    [text] = warnings(tmp_path, frame.assign(outcome_code=columns[code]))
    assert text.startswith("outcome_code tells the died of (nearly) every row; add drop:")


def test_a_feature_that_is_the_number_to_predict_in_other_units_is_named(tmp_path: Path) -> None:
    frame = people().assign(days=lambda rows: rows["age"] * 24 + 3)
    texts = warnings(tmp_path, frame, "age", task="regression")
    assert texts == [
        "days tells the age of (nearly) every row; add drop: [days] unless this is known before"
        " the age is"
    ]
    noisy = frame.assign(days=frame["days"] + np.random.default_rng(1).normal(0, 20, 200))
    assert warnings(tmp_path, noisy, "age", task="regression") == []


def test_a_feature_that_only_goes_with_the_larger_class_gives_nothing_away(tmp_path: Path) -> None:
    frame = people(500).assign(died="no")
    frame.loc[:4, "died"] = "yes"
    assert warnings(tmp_path, frame) == []
