"""Messages come back as they were, whatever their size, and nothing else gets through."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.channel import messages
from tacit.channel.frames import GarbageError
from tacit.channel.messages import LENGTH, PIECE, Assembly, decode, encode, pieces
from tacit.core.errors import DataError

DTYPES = st.sampled_from(list(messages.DTYPES.values()))
HALF_A_LETTER = pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)})
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))


def is_equal(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and np.array_equal(
        first.reshape(-1).view(np.uint8), second.reshape(-1).view(np.uint8)
    )


@given(st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4))
def test_arrays_come_back_as_they_were(arrays: dict[str, Any]) -> None:
    back = decode(encode(arrays))
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert is_equal(back[name], np.ascontiguousarray(array).reshape(array.shape))
        assert back[name].shape == array.shape
        assert back[name].flags.writeable


@given(st.integers(1, 40))
def test_the_pieces_may_be_cut_anywhere(size: int) -> None:
    message = {"x": np.arange(30.0), "y": np.zeros((0, 3)), "z": np.arange(5, dtype="i2"), "n": 7}
    raw = encode(message)
    assembly = Assembly()
    for start in range(0, len(raw), size):
        assert not assembly.complete
        assembly.add(raw[start : start + size])
    back = assembly.message()
    assert back["n"] == 7
    assert all(is_equal(back[name], message[name]) for name in "xyz")


def test_a_large_array_is_sent_in_pieces_that_are_views_of_it() -> None:
    array = np.arange(PIECE, dtype="<f4")  # four pieces
    _, *parts = pieces({"x": array})
    assert [len(part) for part in parts] == [PIECE] * 4
    assert all(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts)


def test_arrays_of_another_order_of_bytes_or_axes_come_back_with_the_same_values() -> None:
    back = decode(encode({"big": np.arange(3, dtype=">i4"), "axes": np.ones((2, 3)).T[::-1]}))
    assert back["big"].tolist() == [0, 1, 2]
    assert back["axes"].shape == (3, 2)


def test_plain_values_come_back() -> None:
    values = {"n": 3, "rate": 0.1, "name": "müller", "list": [1, None, True], "map": {"a": [2]}}
    assert decode(encode(values)) == values


def test_a_table_comes_back_with_its_columns_and_gaps() -> None:
    table = pd.DataFrame(
        {
            "age": [1, 2, 3],
            "born": pd.to_datetime(["2020-01-01", None, "1999-12-31"]),
            "name": ["ana", None, "josé"],
            "weight": [1.5, np.nan, 3.0],
            "ill": [True, False, True],
        }
    )
    back = decode(encode({"rows": table, "x": np.ones(2)}))
    pd.testing.assert_frame_equal(back["rows"], table)
    assert set(back) == {"rows", "x"}
    empty = decode(encode({"rows": table.iloc[:0]}))["rows"]
    assert list(empty.columns) == list(table.columns)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"key": b"secret"}, "got key of type bytes"),
        ({"x": np.array([object()])}, "x: arrays of object cannot be sent"),
        ({"x": np.array(["text"])}, "x: arrays of <U4 cannot be sent"),
        ({"rows": pd.DataFrame({"a": [(1, 2)]})}, "a holds tuple in its cells"),
        ({"rows": pd.DataFrame({1: [2]})}, "text as its columns' names, got 1"),
        ({"x": {1, 2}}, "got x of type set"),
        ({"x": np.ma.masked_equal([1, 2], 2)}, "x: what a masked array hides would be sent"),
        (
            {"rows": HALF_A_LETTER},
            "a holds text that is",
        ),
    ],
)
def test_what_cannot_be_sent_is_told_without_its_value(message: Any, text: str) -> None:
    with pytest.raises(DataError) as caught:
        encode(message)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def framed(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LENGTH.pack(len(raw)) + raw + data


def with_array(*entry: Any) -> dict[str, Any]:
    return {"arrays": [list(entry)], "tables": {}, "values": {}}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        LENGTH.pack(1 << 30),
        framed(b"not json"),
        framed([]),
        framed({}),
        framed({"arrays": [], "tables": {}, "values": {}, "more": 1}),
        framed({"arrays": {}, "tables": {}, "values": {}}),
        framed({"arrays": [], "tables": {}, "values": {}}, b"x"),
        framed(with_array("x", "|O", [1]), bytes(8)),
        framed(with_array("x", "<f8", [-1])),
        framed(with_array("x", "<f8", [True]), bytes(8)),
        framed(with_array("x", "<f8", [1.0]), bytes(8)),
        framed(with_array("x", "<f8", [1 << 40, 1 << 40])),
        framed(with_array("x", "<f8", [1] * 40), bytes(8)),
        framed(with_array("x", "<f8", [0, 1 << 47, 1 << 47])),
        framed(with_array("x", "|b1", [2]), b"\x01\x07"),
        framed(with_array("x", "<f8", [1]), bytes(7)),
        framed(with_array("x", "<f8", [1]), bytes(9)),
        framed(with_array("x", "<f8")),
        framed({"arrays": [["x", "<f8", [0]]], "tables": {}, "values": {"x": 1}}),
        framed({"arrays": [], "tables": {"t": [["a", "plain"]]}, "values": {}}),
        framed({"arrays": [], "tables": {"t": 3}, "values": {}}),
        framed({"arrays": [], "tables": {"t": [["a", "code"]]}, "values": {}}),
        pickle.dumps({"x": 1}),
    ],
)
def test_what_no_message_is_made_of_is_refused(raw: bytes) -> None:
    with pytest.raises(GarbageError):
        decode(raw)


def test_a_message_that_is_larger_than_expected_is_refused_before_there_is_room_for_it() -> None:
    raw = framed(with_array("x", "<f8", [1 << 30]))
    with pytest.raises(GarbageError, match="announced a message of 8589934592 bytes; at most 1000"):
        decode(raw, largest=1000)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("rows/0/ends", np.array([5, 2, 9], "<i8")),
        ("rows/0/ends", np.array([1, 2, 99], "<i8")),
        ("rows/0/ends", np.array([1, 2], "<i8")),
        ("rows/0/ends", np.array([2**63 - 2, -(2**63), 6], "<i8")),
        ("rows/0", np.frombuffer(b"\xed\xa0\x80\xed\xa0\x80", "u1")),
        ("rows/0/missing", np.array([1, 0, 0], "u1")),
        ("rows/0", np.full(6, 255, "u1")),
        ("rows/0", np.zeros((2, 3), "u1")),
    ],
)
def test_a_table_whose_text_makes_no_sense_is_refused(part: str, values: Any) -> None:
    arrays = {
        "rows/0": np.frombuffer(b"aabbcc", np.uint8),
        "rows/0/ends": np.array([2, 4, 6], "<i8"),
        "rows/0/missing": np.zeros(3, bool),
    }
    entries = {**arrays, part: values}
    header = {
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in entries.items()],
        "tables": {"rows": [["name", "text"]]},
        "values": {},
    }
    raw = framed(header, b"".join(array.tobytes() for array in entries.values()))
    with pytest.raises(GarbageError, match="sent a table"):
        decode(raw)


def test_dates_that_no_table_can_hold_are_refused() -> None:
    header = {
        "arrays": [["rows/0", "<M8[D]", [1]]],
        "tables": {"rows": [["born", "plain"]]},
        "values": {},
    }
    with pytest.raises(GarbageError, match="sent a table"):
        decode(framed(header, (1 << 61).to_bytes(8, "little")))


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damage_never_gets_past_as_another_error(junk: bytes, at: int, byte: int) -> None:
    table = pd.DataFrame({"a": ["x", None], "b": [1, 2]})
    raw = bytearray(encode({"t": table, "x": np.arange(3), "n": 1}))
    raw[at % len(raw)] = byte
    raw += junk
    with contextlib.suppress(GarbageError):
        decode(raw)
