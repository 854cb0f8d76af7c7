from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.vertical.tags import (
    SECURITY,
    as_tags,
    distinct,
    make_tags,
    shared_positions,
    sorted_tags,
    tag_length,
)

SIZES = st.lists(
    st.integers(0, 2**32 - 1) | st.integers(0, 3) | st.integers(0, 32).map(lambda k: 2**k),
    max_size=8,
)
# NumPy drops zeros at the end of bytes where it shows them: some tags end in zeros, or are zeros.
TAGS = st.lists(
    st.binary(min_size=3, max_size=3) | st.text("\0a", min_size=3, max_size=3).map(str.encode),
    unique=True,
)


@settings(max_examples=300)
@given(SIZES)
@example([2**20, 2**20])
@example([2**56 + 1, 1])  # which a logarithm in floats takes for 2^56
@example([])
@example([0, 5])
@example([1, 1])
def test_tags_are_as_long_as_the_chance_of_a_false_match_asks_and_no_longer(
    sizes: list[int],
) -> None:
    length = tag_length(sizes)
    pairs_across = sum(a * b for a, b in combinations(sizes, 2))
    pairs_within = [n * (n - 1) // 2 for n in sizes]
    pairs = max(0, pairs_across, *pairs_within)
    assert pairs << SECURITY <= 1 << 8 * length  # pairs / 2^bits <= 2^-40
    assert length == 1 or max(pairs, 1) << SECURITY > 1 << 8 * (length - 1)


def test_more_parties_and_larger_sets_have_longer_tags() -> None:
    lengths = [tag_length([10**power] * parties) for parties in (2, 50) for power in (0, 3, 6, 9)]
    assert lengths == [5, 8, 10, 13, 7, 9, 12, 14]
    assert max(lengths) <= 64  # what BLAKE2b can give


def test_false_matches_come_as_often_as_the_bound_says() -> None:
    """Sets that share no element, at 3 bits of security, so that false matches can be counted."""
    n = m = 4
    assert tag_length([n, 8], 3) == 1  # 32 pairs / 256 = 2^-3 needs just one byte
    trials = 4000
    chance = n * m / 256
    source = random.Random(7)
    wrong = 0
    for trial in range(trials):
        seal = trial.to_bytes(32, "big")
        elements = source.randbytes(8 * (n + m))
        tags = as_tags(make_tags(elements, 8, seal, 1), 1)
        wrong += len(set(tags[:n].tolist()) & set(tags[n:].tolist())) > 0
    margin = 5 * (chance / trials) ** 0.5
    assert chance - margin - chance**2 < wrong / trials < chance + margin


@given(TAGS, TAGS)
def test_both_sides_find_the_tags_that_both_have_in_the_same_order(
    ours: list[bytes], theirs: list[bytes]
) -> None:
    our_tags = as_tags(ours, 3)
    their_tags = as_tags(theirs, 3)
    our_positions = shared_positions(our_tags, their_tags)
    their_positions = shared_positions(their_tags, our_tags)
    shared = sorted({*ours} & {*theirs})
    assert our_positions.dtype == np.int64
    assert [ours[position] for position in our_positions] == shared
    assert [theirs[position] for position in their_positions] == shared


@given(TAGS)
def test_tags_that_end_in_zeros_are_compared_to_the_last_byte(raw: list[bytes]) -> None:
    tags = as_tags(raw, 3)
    assert len(tags) == len(raw)
    assert tags.tobytes() == b"".join(raw)
    assert distinct(tags)
    assert sorted_tags(tags).tobytes() == b"".join(sorted(raw))
    assert raw == [] or not distinct(as_tags([*raw, raw[0]], 3))


def test_a_zero_more_or_less_is_another_tag() -> None:
    tags: Any = as_tags([b"\0\0\0", b"a\0\0", b"a\0a", b"\0a\0", b"a\0b"], 3)
    assert shared_positions(tags, as_tags([b"a\0\0"], 3)).tolist() == [1]
    assert shared_positions(tags, as_tags([b"\0\0\0", b"\0\0a"], 3)).tolist() == [0]


def test_no_tags_are_no_tags() -> None:
    empty = as_tags([], 5)
    assert (len(empty), empty.tobytes(), make_tags(b"", 32, b"seal", 5)) == (0, b"", b"")
    assert distinct(empty)
    assert shared_positions(empty, as_tags([b"12345"], 5)).tolist() == []
    assert as_tags(b"", 5).dtype == empty.dtype


@given(
    st.lists(st.binary(min_size=4, max_size=4), max_size=6),
    st.binary(min_size=1, max_size=64),
    st.integers(1, 16),
)
def test_an_element_has_one_tag_in_a_session_wherever_it_stands(
    elements: list[bytes], seal: bytes, length: int
) -> None:
    raw = make_tags(b"".join(elements), 4, seal, length)
    assert len(raw) == length * len(elements)
    alone = [make_tags(element, 4, seal, length) for element in elements]
    assert [raw[at : at + length] for at in range(0, len(raw), length)] == alone


@pytest.mark.parametrize("seal", [bytes(31) + b"\1", b"another seal"])
def test_in_another_session_elements_have_other_tags(seal: bytes) -> None:
    elements = random.Random(1).randbytes(32 * 50)
    tags = as_tags(make_tags(elements, 32, bytes(32), 10), 10)
    other_tags = as_tags(make_tags(elements, 32, seal, 10), 10)
    assert len(shared_positions(tags, other_tags)) == 0
    assert distinct(tags)
    assert distinct(other_tags)
