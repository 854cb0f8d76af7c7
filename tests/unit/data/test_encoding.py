"""How a table becomes numbers: what was learnt from the training rows is all that counts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.errors import DataError
from tacit.data.encoding import Encoding, Target
from tacit.data.recognition import guess_format

NUMBERS = st.one_of(st.none(), st.floats(-1e6, 1e6))
TEXTS = st.one_of(st.none(), st.sampled_from(["north", "south", "east", "west"]))
DATES = st.one_of(
    st.none(), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)).map(str)
)
ROWS = st.lists(st.tuples(NUMBERS, TEXTS, DATES, st.booleans()), min_size=3, max_size=30)


def a_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Columns of every kind; the first row has no gap, so that no column is empty."""
    complete = (1.5, "north", "2024-02-29", True)
    return pd.DataFrame([complete, *rows], columns=["age", "region", "visit", "smoker"])


def fit(**columns: list[Any]) -> Encoding:
    return Encoding.fit(pd.DataFrame(columns))


@given(ROWS)
def test_every_row_has_every_feature_and_each_is_finite(rows: list[tuple[Any, ...]]) -> None:
    frame = a_frame(rows)
    encoding = Encoding.fit(frame)
    x = encoding.apply(frame)
    assert x.shape == (len(frame), len(encoding.names))
    assert x.dtype == torch.float32
    assert torch.isfinite(x).all()
    assert len(set(encoding.names)) == len(encoding.names)


@given(ROWS, st.randoms(use_true_random=False))
def test_a_row_is_encoded_alone_whatever_its_company_and_the_order_of_columns(
    rows: list[tuple[Any, ...]], random: Any
) -> None:
    frame = a_frame(rows)
    encoding = Encoding.fit(frame)
    columns = [*frame.columns, "more"]
    random.shuffle(columns)
    row = random.randrange(len(frame))
    alone = frame.assign(more="x")[columns].iloc[[row]]
    assert torch.equal(encoding.apply(alone)[0], encoding.apply(frame)[row])


@given(ROWS)
def test_what_is_saved_as_json_is_the_same_encoding(rows: list[tuple[Any, ...]]) -> None:
    frame = a_frame(rows)
    target = Target("ill", "classification", ("no", "yes"))
    encoding = Encoding.fit(
        frame, target=target, notes=("2 rows were left out",), client="h", clients=("a", "b")
    )
    again = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert again == encoding
    assert torch.equal(again.apply(frame), encoding.apply(frame))


@given(st.lists(NUMBERS, min_size=2, max_size=40).filter(lambda values: set(values) != {None}))
def test_numbers_are_filled_with_the_median_centred_and_scaled(values: list[float | None]) -> None:
    frame = pd.DataFrame({"a": pd.Series(values, dtype=float)})
    encoding = Encoding.fit(frame)
    x = encoding.apply(frame).double()
    median = np.median([value for value in values if value is not None])
    filled = np.array([median if value is None else value for value in values])
    assert abs(x[:, 0].mean()) < 1e-4
    if filled.std() > 1e-6 * max(1, abs(filled).max()):
        wanted = (filled - filled.mean()) / filled.std()
        np.testing.assert_allclose(x[:, 0], wanted, rtol=1e-3, atol=1e-4)
    assert encoding.names == (("a", "a is missing") if None in values else ("a",))
    if None in values:
        assert x[:, 1].tolist() == [float(value is None) for value in values]


def test_levels_come_by_frequency_and_a_gap_is_one_more() -> None:
    encoding = fit(region=["south", "north", "north", None, "east", "north", "south"])
    assert encoding.names == (
        "region = north",
        "region = south",
        "region = east",
        "region is missing",
    )
    x = encoding.apply(pd.DataFrame({"region": ["east", None, "mars"]}))
    assert x.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_a_gap_that_the_training_rows_never_had_is_no_level() -> None:
    encoding = fit(region=["north", "south"], age=[1.0, 3.0])
    assert encoding.apply(pd.DataFrame({"region": [None], "age": [None]})).tolist() == [[0, 0, 0]]


def test_beyond_fifty_levels_the_rare_ones_and_the_unknown_are_other() -> None:
    common = [f"level{k:02d}" for k in range(50)] * 3
    frame = pd.DataFrame({"a": [*common, "rare1", "rare2", None]})
    encoding = Encoding.fit(frame)
    assert len(encoding.names) == 52
    x = encoding.apply(pd.DataFrame({"a": ["rare1", "unknown", None, "level07"]}))
    assert (x.sum(1) == 1).all()
    names = [encoding.names[feature] for feature in x.argmax(1)]
    assert names == ["a = other", "a = other", "a is missing", "a = level07"]
    assert "2 rarer ones are other" in encoding.describe()[0]["becomes"]


def test_a_date_is_days_since_1970_and_a_place_in_the_year() -> None:
    """2 January 1970 is day 1 of the epoch and day 2 of its year.

    The mean of 0, 1 and 2 is 1, their variance 2/3.
    """
    encoding = fit(day=["1970-01-01", "1970-01-02", "1970-01-03"])
    x = encoding.apply(pd.DataFrame({"day": ["1970-01-01 12:00", "1970-01-02", None]})).double()
    np.testing.assert_allclose(x[:, 0], [-0.5 / (2 / 3) ** 0.5, 0, 0], atol=1e-6)
    angle = 2 * np.pi * 2 / 365.25
    np.testing.assert_allclose(x[1, 1:3], [np.sin(angle), np.cos(angle)], atol=1e-6)
    assert x[2, 1:3].tolist() == [0, 0]


def test_dates_are_the_same_however_they_come() -> None:
    days = ["2024-01-31", "2024-12-01", "2025-06-30"]
    stamps = pd.to_datetime(pd.Series(days))
    forms = {
        "text": pd.Series(days),
        "stamps": stamps,
        "with a zone": stamps.dt.tz_localize("UTC"),
        "objects": pd.Series([stamp.date() for stamp in stamps], dtype=object),
    }
    format = "%d/%m/%Y"
    written = pd.DataFrame({"d": stamps.dt.strftime(format)})
    expected = Encoding.fit(written, dates={"d": format}).apply(written)
    for form in forms.values():
        frame = pd.DataFrame({"d": form})
        assert torch.equal(Encoding.fit(frame).apply(frame), expected)


def test_booleans_are_numbers_with_or_without_gaps() -> None:
    encoding = fit(a=[True, False, True], b=[True, None, False], c=["True", "False", "True"])
    assert [column.kind for column in encoding.columns] == ["number"] * 3
    assert encoding.apply(pd.DataFrame({"a": [True], "b": [None], "c": [False]})).shape == (1, 4)


def test_numbers_that_are_really_categories_are_taken_as_stated() -> None:
    frame = pd.DataFrame({"ward": [1, 2, 1, 3]})
    encoding = Encoding.fit(frame, categories=["ward"])
    assert encoding.names == ("ward = 1", "ward = 2", "ward = 3")
    # pandas makes floats of whole numbers with a gap
    as_floats = pd.DataFrame({"ward": [1.0, None, 2.0]})
    assert encoding.apply(as_floats).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_a_constant_column_is_zero_and_a_large_number_stays_finite() -> None:
    encoding = fit(a=[7.0, 7.0, 7.0], b=[1e30, 2e30, 3e30])
    x = encoding.apply(pd.DataFrame({"a": [7.0, 8.0], "b": [2e30, 2e30]}))
    torch.testing.assert_close(x, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    with pytest.raises(DataError, match="b holds numbers too large"):
        encoding.apply(pd.DataFrame({"a": [7.0], "b": [1e300]}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["31/01/2024", "01/02/2024"],
            r"looks like dates such as '31/01/2024'; .* dates: \{a: '%d/%m/%Y'\}",
        ),
        (
            [f"p{k}" for k in range(40)],
            r"40 different texts in 40 training rows, as names and ids do, .* add drop: \[a\]",
        ),
        (["1", "2", "3", "many"], "holds numbers and also 'many'"),
        (["2024-01-01", "2024-01-02", "soon"], "holds dates and also 'soon'"),
        (["2024-01-01", "2024-02-31"], "expected a date such as 2026-01-31, got '2024-02-31'"),
        ([1.0, float("inf")], "infinite values in a"),
        ([1e308, -1e308], "too large"),
        ([None, None], "has no value in the training rows"),
        ([float("nan")] * 2, "has no value in the training rows"),
        (pd.to_timedelta([1, 2], "D"), "turn it into numbers"),
    ],
    ids=[
        "d/m/y",
        "ids",
        "numbers and text",
        "dates and text",
        "no such day",
        "inf",
        "overflow",
        "none",
        "nan",
        "span",
    ],
)
def test_a_column_that_could_mean_two_things_is_refused_in_one_line(
    values: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Encoding.fit(pd.DataFrame({"a": values}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("31/01/2024", "%d/%m/%Y"),
        ("01/31/2024", "%m/%d/%Y"),
        ("1.2.24", "%d.%m.%y"),
        ("2024/01/31", "%Y/%m/%d"),
        ("31-01-2024 10:30", "%d-%m-%Y %H:%M"),
    ],
)
def test_the_format_that_is_suggested_reads_the_date(text: str, format: str) -> None:
    assert guess_format([text]) == format
    encoding = Encoding.fit(pd.DataFrame({"a": [text]}), dates={"a": format})
    assert encoding.columns[0].kind == "date"


def test_new_rows_that_do_not_fit_are_refused_with_the_column() -> None:
    encoding = fit(age=[1.0, 2.0], region=["north", "south"])
    with pytest.raises(DataError, match=r"no column 'region'; did you mean regoin\?"):
        encoding.apply(pd.DataFrame({"age": [1.0], "regoin": ["north"]}))
    with pytest.raises(DataError, match="column age: expected a number, got 'old'"):
        encoding.apply(pd.DataFrame({"age": ["old"], "region": ["north"]}))
    message = r"expected rows as a pandas DataFrame .* got two columns of one name"
    with pytest.raises(DataError, match=message):
        encoding.apply(pd.DataFrame([[1.0, 2.0]], columns=["age", "age"]))
    with pytest.raises(DataError, match=r"expected rows as a pandas DataFrame .* got list"):
        encoding.apply([{"age": 1.0}])  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"no column 'ward' to encode"):
        Encoding.fit(pd.DataFrame({"age": [1.0]}), categories=["ward"])


def test_the_description_is_in_plain_words() -> None:
    encoding = fit(
        region=["north", "south", "north"],
        day=["2024-01-01", None, "2024-01-01"],
        age=[1.0, None, 3.0],
    )
    region, day, age = encoding.describe()
    assert region == {
        "column": "region",
        "kind": "category",
        "becomes": "one of 2 levels: north, south",
        "missing": "none",
    }
    assert day["becomes"] == "days since 1970, and the time of year as sine and cosine"
    assert day["missing"].startswith("1 gap filled with 2024-01-01")
    assert age["missing"].startswith("1 gap filled with 2,")


def test_a_file_that_holds_no_encoding_is_named(tmp_path: Path) -> None:
    no_such_kind = '{"columns": [{"kind": "colour"}]}'
    incomplete = '{"columns": [{"kind": "number", "name": "a"}]}'
    for content in ("", "[]", no_such_kind, incomplete):
        (tmp_path / "e.json").write_text(content)
        with pytest.raises(DataError, match=r"e\.json holds no encoding, or is damaged"):
            Encoding.load(tmp_path / "e.json")
    with pytest.raises(DataError, match="No such file"):
        Encoding.load(tmp_path / "nowhere.json")


def test_predictions_come_back_as_they_were_in_the_table() -> None:
    output = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert Target("y", labels=("no", "yes")).decode(output) == ["yes", "no"]
    assert Target("y", labels=("0", "1"), type="integer").decode(output) == [1, 0]
    assert Target("y", labels=("False", "True"), type="boolean").decode(output) == [True, False]
    assert Target("y", "regression", centre=10.0, spread=2.0).decode(output[:, :1]) == [10.0, 12.0]


def test_a_format_that_is_none_of_dates_is_refused_by_the_columns_name() -> None:
    rows = pd.DataFrame({"visit": ["01/02/2024", "03/04/2024"]})
    with pytest.raises(DataError, match="column visit: '%Q' is no format of dates: 'Q' is a bad"):
        Encoding.fit(rows, dates={"visit": "%Q"})


def test_a_column_of_lists_is_refused_by_its_name() -> None:
    encoding = Encoding.fit(pd.DataFrame({"ward": ["north", "south"]}))
    with pytest.raises(DataError, match="column ward holds lists; turn it into plain columns"):
        encoding.apply(pd.DataFrame({"ward": [["north"], ["south"]]}))
