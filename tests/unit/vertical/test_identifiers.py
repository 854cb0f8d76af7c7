from __future__ import annotations

import datetime
import itertools
import unicodedata
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.core.errors import DataError
from tacit.vertical.identifiers import EXACT, Identifiers, Spelling, read_identifiers

UNICODE, CASE, SPACES = ("nfc", "nfkc", "keep"), ("fold", "keep"), ("collapse", "remove", "keep")
SPELLINGS = [Spelling(*chosen) for chosen in itertools.product(UNICODE, CASE, SPACES)]  # type: ignore[arg-type]
# Letters that fold to several, marks of several classes, signs whose forms hold spaces, spaces of
# many kinds.
AWKWARD = (
    "aAßẞİ\u0131Σςᾴΐŉǰﬀﬁ½²①\uff21ｱÅ\u212béẛ\u0301\u0323\u0345\u0308\u0307\u0338¨\u00b4\u00af\u1fc1\ufc5e한ᄒ"
    " \u00a0\u3000\u2003\t\n\x1f\u200b\ufeff\ud800"
)
TEXTS = st.text(st.sampled_from(AWKWARD) | st.characters(), max_size=8)


def read(cells: Any, **spelling: Any) -> list[bytes]:
    return read_identifiers(cells, "id", Spelling(**spelling)).values


@settings(max_examples=150)
@given(TEXTS)
@example(
    "a\xa8"
)  # NFKC makes a space of it and a mark, which joins the letter once the space is gone
@example("\u0345\u0301")
def test_spelling_twice_is_spelling_once(text: str) -> None:
    for spelling in SPELLINGS:
        once = spelling.apply(text)
        assert spelling.apply(once) == once


@settings(max_examples=150)
@given(TEXTS)
@example("\u1fb4")
@example("\u03b1\u0345\u0301")  # its marks in the order in which a keyboard may give them
def test_texts_that_look_the_same_are_the_same(text: str) -> None:
    forms = {text} | {unicodedata.normalize(form, text) for form in ("NFC", "NFD")}
    for spelling in SPELLINGS:
        if spelling.unicode != "keep":
            assert len({spelling.apply(form) for form in forms}) == 1
        if spelling.unicode == "nfkc":
            assert spelling.apply(unicodedata.normalize("NFKD", text)) == spelling.apply(text)


@settings(max_examples=100)
@given(TEXTS)
def test_each_part_of_a_spelling_does_what_it_says(text: str) -> None:
    for spelling in SPELLINGS:
        spelt = spelling.apply(text)
        if spelling.unicode != "keep":
            assert unicodedata.is_normalized(spelling.unicode.upper(), spelt)  # type: ignore[arg-type]
        if spelling.case == "fold" and spelling.unicode == "keep":
            assert spelt == spelling.apply(text.casefold())
        if spelling.spaces == "collapse":
            assert spelt == " ".join(spelt.split())
        if spelling.spaces == "remove":
            assert not any(letter.isspace() for letter in spelt)
    assert Spelling("keep", "keep", "keep").apply(text) == text


def test_every_letter_has_one_spelling_and_every_capital_folds() -> None:
    spelling, compatible = Spelling(), Spelling("nfkc", "fold", "remove")
    for letter in map(chr, range(0x2FF00)):
        for rules in (spelling, compatible):
            spelt = rules.apply("x" + letter)
            assert rules.apply(spelt) == spelt, ascii(letter)
        if len(letter.upper().lower()) == 1:  # a capital that has one small letter
            assert spelling.apply(letter.upper()) == spelling.apply(letter.upper().lower()), ascii(
                letter
            )


@pytest.mark.parametrize(
    ("text", "other_text", "equal"),
    [
        ("Straße", "STRASSE", True),
        ("STRAẞE", "strasse", True),
        ("İstanbul", "i\u0307stanbul", True),
        ("İstanbul", "istanbul", False),  # its dot is a mark of its own
        ("\u0131", "I", False),  # and the letter without one is another letter
        ("ΟΔΟΣ", "οδος", True),
        ("a\u0323\u0301", "a\u0301\u0323", True),  # marks below and above, in either order
        ("a\u0301\u0308", "a\u0308\u0301", False),  # two above: their order is seen
        ("\u212b", "å", True),
        ("Ana\u00a0Muñoz", "ana  mun\u0303oz", True),
        ("Ana\u3000Muñoz", "ana\u2003muñoz\x1f", True),
        ("AnaMuñoz", "ana muñoz", False),
        (
            "ana\u200bmuñoz",
            "anamuñoz",
            False,
        ),  # zero-width characters are kept: they can be letters' joints
        ("\ufeffana", "ana", False),
        ("ﬁona", "fiona", True),  # folding alone opens ligatures
        ("x²", "x2", False),
        ("007", "7", False),
    ],
)
def test_what_is_the_same_by_default(text: str, other_text: str, equal: bool) -> None:
    assert (Spelling().apply(text) == Spelling().apply(other_text)) is equal


def test_other_spellings_are_the_same_where_asked() -> None:
    assert read(["x²", "\uff382"], unicode="nfkc") == [b"x2"]
    assert read(["a b", "ab"], spaces="remove") == [b"ab"]
    assert read(["Ab", "ab"], case="keep") == [b"Ab", b"ab"]
    assert read([" a", "a"], spaces="keep") == [b" a", b"a"]
    assert read(["é", "e\u0301"], unicode="keep") == ["é".encode(), "e\u0301".encode()]


@given(st.lists(TEXTS, max_size=6))
@settings(max_examples=50)
def test_no_text_crashes_and_each_row_is_counted_once(texts: list[str]) -> None:
    identifiers = read_identifiers(texts, "id")
    assert (
        identifiers.total
        == len(texts)
        == len(identifiers) + identifiers.missing + identifiers.repeated
    )
    assert identifiers.rows.tolist() == sorted(identifiers.rows.tolist())
    assert len(set(identifiers.values)) == len(identifiers)


def test_lone_surrogates_stay_apart() -> None:
    assert len(read(["a\ud800", "a\ud801", "a?"])) == 3


@pytest.mark.parametrize(
    "cells",
    [
        [7, 8],
        [7.0, 8.0],
        ["7", "8"],
        [7, "8"],
        [7.0, "8", None],
        [np.float32(7), np.int8(8)],
        np.array([7, 8], np.uint64),
        np.array([7, 8], np.float32),
        pd.Series([7, 8, None]),
        pd.Series([7, 8, None], dtype="Int64"),
        pd.Series([7, None, 8], dtype="Float64"),
        pd.Series(["7", "8"], dtype="category"),
        pd.Series([7.0, 8.0], dtype=object),
        pd.Index([7, 8]),
        ("7", "8"),
    ],
    ids=repr,
)
def test_whole_numbers_are_the_same_in_every_dress(cells: Any) -> None:
    assert read(cells) == [b"7", b"8"]


def test_zeros_that_lead_and_decimals_in_text_are_kept() -> None:
    assert read(["007", "7", "7.0", "+7", "-0"]) == [b"007", b"7", b"7.0", b"+7", b"-0"]
    assert read([-0.0, 0]) == [b"0"]


def test_long_whole_numbers_keep_their_digits() -> None:
    assert read([2**63, None, 2**53 + 1]) == [b"9223372036854775808", b"9007199254740993"]
    assert read([float(EXACT - 1)]) == [b"9007199254740991"]


@pytest.mark.parametrize(
    "number", [float(EXACT), -float(EXACT), 1e300, 7.5, float("inf"), np.float32(0.1)]
)
@pytest.mark.parametrize("kind", [None, object])
def test_floats_that_are_no_identifiers_are_refused(number: float, kind: Any) -> None:
    for cells in (pd.Series([1.0, number], dtype=kind), [number, "a"]):
        with pytest.raises(
            DataError, match=r"^id holds numbers with decimals, or too long for a float"
        ):
            read(cells)


@pytest.mark.parametrize(
    "cells",
    [
        [True],
        [True, None],
        np.array([True]),
        pd.Series([True, None], dtype="boolean"),
        ["a", np.True_],
    ],
    ids=repr,
)
def test_true_and_false_identify_nobody(cells: Any) -> None:
    with pytest.raises(
        DataError, match=r"^id holds true and false, which identify nobody; name another column$"
    ):
        read(cells)


@pytest.mark.parametrize("cell", [["a"], ("a", "b"), {"a": 1}, b"a", np.array([1, 2])], ids=repr)
def test_cells_that_are_no_text_are_refused_and_not_shown(cell: Any) -> None:
    with pytest.raises(
        DataError, match=rf"^id holds {type(cell).__name__} in its cells; give identifiers as text"
    ):
        read_identifiers(pd.DataFrame({"id": pd.Series(["x", cell], dtype=object)}), "id")


def test_dates_are_iso_wherever_they_come_from() -> None:
    day = "2020-02-29"
    dates = (
        pd.to_datetime([day]),
        [pd.Timestamp(day), "x"],
        [datetime.date(2020, 2, 29)],
        [day],
        pd.Series([day]),
    )
    assert {read(cells)[0] for cells in dates} == {day.encode()}
    assert read([datetime.datetime(2020, 2, 29)]) == [day.encode()]
    assert read(pd.to_datetime(["2020-02-29 10:30"])) == [b"2020-02-29 10:30:00"]
    assert read(["2020-02-29 00:00:00"]) == [b"2020-02-29 00:00:00"]  # text stays as it is


@pytest.mark.parametrize(
    "gap",
    [
        *("", "NA", " NA ", "nan", "<NA>", None, float("nan"), pd.NaT, pd.NA, " \u00a0"),
        *(Decimal("NaN"), np.float32("nan"), np.datetime64("NaT"), np.timedelta64("NaT")),
    ],
    ids=repr,
)
def test_gaps_are_counted_and_no_identifiers(gap: Any) -> None:
    for cells in (["a", gap], pd.Series(["a", gap], dtype=object)):
        identifiers = read_identifiers(cells, "id")
        assert (
            identifiers.values,
            identifiers.missing,
            identifiers.total,
            identifiers.repeated,
        ) == ([b"a"], 1, 2, 0)


def test_a_row_with_a_gap_in_one_of_its_columns_is_missing() -> None:
    table = pd.DataFrame({"a": ["x", "x", None], "b": ["y", "", "y"]})
    identifiers = read_identifiers(table, ["a", "b"])
    assert (len(identifiers), identifiers.rows.tolist(), identifiers.missing) == (1, [0], 2)


def test_several_columns_are_not_run_together() -> None:
    table = pd.DataFrame({"a": ["ab", "a", "ab", "AB "], "b": ["c", "bc", "c", "c"]})
    identifiers = read_identifiers(table, ["a", "b"])
    assert (len(identifiers), identifiers.rows.tolist(), identifiers.repeated) == (2, [0, 1], 2)
    assert identifiers.values != read_identifiers(table, ["b", "a"]).values
    assert (
        read_identifiers(table, ["a"]).values
        == read_identifiers(table, "a").values
        == [b"ab", b"a"]
    )


@given(
    st.lists(
        st.tuples(st.text("ab\0", max_size=3), st.text("ab\0", max_size=3)), min_size=1, max_size=8
    )
)
@settings(max_examples=50)
def test_pairs_are_the_same_only_where_both_parts_are(pairs: list[tuple[str, str]]) -> None:
    table = pd.DataFrame(pairs, columns=["a", "b"], dtype=object)
    identifiers = read_identifiers(table, ["a", "b"], Spelling("keep", "keep", "keep"))
    assert len(identifiers) == len({pair for pair in pairs if all(pair)})


def test_of_rows_with_one_identifier_the_first_wins() -> None:
    identifiers = read_identifiers(["b", "A", "a", "B ", None, "c"], "id")
    assert (identifiers.values, identifiers.rows.tolist()) == ([b"b", b"a", b"c"], [0, 1, 5])
    assert (identifiers.missing, identifiers.repeated) == (1, 2)


def test_rows_are_positions_whatever_the_index() -> None:
    table = pd.DataFrame({"id": ["a", "b", "a", "c"]}, index=[9, 9, "x", -1])
    assert read_identifiers(table, "id").rows.tolist() == [0, 1, 3]
    assert read_identifiers(table["id"], "id").rows.tolist() == [0, 1, 3]
    assert table.index.tolist() == [9, 9, "x", -1]


def test_columns_that_are_not_there_or_twice_there_are_told() -> None:
    table = pd.DataFrame([["a", "b", "c"]], columns=["nin", "name", "name"])
    with pytest.raises(DataError, match=r"^there is no column 'nim'; did you mean nin\?$"):
        read_identifiers(table, "nim")
    with pytest.raises(DataError, match=r"^two columns are called 'name'; rename one$"):
        read_identifiers(table, ["nin", "name"])
    with pytest.raises(DataError, match=r"one of nin, name, name$"):
        read_identifiers(table, [])


@pytest.mark.parametrize("table", [None, 7, "text", b"bytes", {"a": 1}, {"a"}], ids=repr)
def test_what_is_no_table_and_no_list_is_refused(table: Any) -> None:
    with pytest.raises(DataError, match=r"^expected a table, or a list of identifiers"):
        read_identifiers(table, "id")


@pytest.mark.parametrize("keys", [[], ["a", "b"]])
def test_a_list_goes_by_one_name(keys: list[str]) -> None:
    with pytest.raises(DataError, match=r"with one name for what they are$"):
        read_identifiers(["x"], keys)


@pytest.mark.parametrize(
    "table", [[], pd.Series([], dtype=object), pd.DataFrame({"id": []}), np.array([])], ids=repr
)
def test_nobody_is_nobody(table: Any) -> None:
    identifiers = read_identifiers(table, "id")
    assert (
        identifiers.values,
        identifiers.rows.tolist(),
        identifiers.total,
        identifiers.missing,
        identifiers.repeated,
    ) == (
        [],
        [],
        0,
        0,
        0,
    )
    assert identifiers.rows.dtype == np.int64


def test_identifiers_do_not_show_themselves() -> None:
    identifiers = read_identifiers(["secret-7", "secret-8"], "id")
    assert repr(identifiers) == "Identifiers(total=2, missing=0)"
    assert isinstance(identifiers, Identifiers)
