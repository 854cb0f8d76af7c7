"""What every group owes to the protocol."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import DataError, MissingDependencyError, StudyError
from tacit.vertical.groups.group import Group

TAG = b"tacit test"
ROUNDS = 500  # of some milliseconds: enough time for another thread to run, if it can
ALL = list(Group.known())
SECURE = [name for name in ALL if Group.find(name).networked]
IDENTIFIERS = st.lists(st.binary(max_size=40), max_size=4, unique=True)


def a_group(name: str) -> Group:
    group = Group.build(name)
    try:
        group.check()
    except (MissingDependencyError, StudyError) as error:
        pytest.skip(str(error))
    return group


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8, deadline=None)
@given(identifiers=IDENTIFIERS)
def test_encryptions_commute(name: str, identifiers: list[bytes]) -> None:
    group = a_group(name)
    a = group.draw_key()
    b = group.draw_key()
    x = group.hash(identifiers, TAG)
    assert len(x) == len(identifiers) * group.size
    assert group.encrypt(group.encrypt(x, a), b) == group.encrypt(group.encrypt(x, b), a)
    assert group.encrypt_hashed(identifiers, TAG, a) == group.encrypt(memoryview(x), a)


@pytest.mark.parametrize("name", ALL)
def test_a_blinding_factor_is_removed_together_with_another_encryption(name: str) -> None:
    group = a_group(name)
    for _ in range(10):
        key = group.draw_key()
        another = group.draw_key()
        x = group.hash([b"v", b"w"], TAG)
        blinded, factor = group.blind(key)
        hidden = group.encrypt(x, blinded)
        both = group.encrypt(group.encrypt(x, key), another)
        assert group.encrypt(hidden, group.unblind(another, factor)) == both
        assert group.encrypt(hidden, another) != both
        assert hidden != group.encrypt(x, key)


@pytest.mark.parametrize("name", ALL)
def test_blinded_keys_and_factors_are_fresh(name: str) -> None:
    group = a_group(name)
    key = group.draw_key()
    pairs = [group.blind(key) for _ in range(20)]
    assert len({blinded for blinded, _ in pairs}) == 20
    assert len({factor for _, factor in pairs}) == 20


@pytest.mark.parametrize("name", SECURE)
def test_a_blinding_factor_does_not_tell_the_keys_of_which_it_is_the_quotient(name: str) -> None:
    group = a_group(name)
    key = group.draw_key()
    _, factor = group.blind(key)
    numerators = set(quotient_numerators(int.from_bytes(factor, "big"), group.order))
    assert group._exponent(key) % group.order not in numerators


def test_the_quotient_of_two_short_numbers_tells_both() -> None:
    order = Group.find("modp2048").order
    numerators = set(quotient_numerators(2**200 * pow(3**100, -1, order) % order, order))
    assert 2**200 in numerators


def quotient_numerators(quotient: int, order: int) -> Iterator[int]:
    """All numerators that Euclid's algorithm finds, of denominators that are as short."""
    larger, smaller = order, quotient
    while smaller:
        yield smaller
        larger, smaller = smaller, larger % smaller


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_factor_is_refused(name: str) -> None:
    group = a_group(name)
    key = group.draw_key()
    order = group.order.to_bytes(group.size, "big")
    for factor in (b"", bytes(group.size), order, b"\xff" * group.size, bytes(group.size) + b"\1"):
        with pytest.raises(DataError, match=f"{name}: expected a factor of {group.size} bytes"):
            group.unblind(key, factor)


@pytest.mark.parametrize("name", SECURE)
def test_other_identifiers_tags_and_keys_give_other_elements(name: str) -> None:
    group = a_group(name)
    identifiers = [str(number).encode() for number in range(40)]
    raw = group.hash(identifiers, TAG)
    raw += group.hash(identifiers, b"another")
    raw += group.encrypt_hashed(identifiers, TAG, group.draw_key())
    raw += group.encrypt_hashed(identifiers, TAG, group.draw_key())
    elements = [raw[at : at + group.size] for at in range(0, len(raw), group.size)]
    assert len(set(elements)) == len(elements) == 4 * len(identifiers)


@pytest.mark.parametrize("name", SECURE)
def test_no_tag_is_refused(name: str) -> None:
    group = a_group(name)
    with pytest.raises(StudyError, match="needs a tag"):
        group.hash([b"v"], b"")


@pytest.mark.parametrize("name", ALL)
def test_an_element_and_a_half_is_refused(name: str) -> None:
    group = a_group(name)
    elements = group.hash([b"v", b"w"], TAG)[:-1]
    with pytest.raises(
        DataError,
        match=f"{name}: expected elements of {group.size} bytes each, got {len(elements)}",
    ):
        group.encrypt(elements, group.draw_key())


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_bytes_are_encrypted_or_refused_by_position(name: str, data: st.DataObject) -> None:
    group = a_group(name)
    good = group.hash([b"v"], TAG)
    any_bytes = data.draw(st.binary(min_size=group.size, max_size=group.size))
    key = group.draw_key()
    try:
        assert len(group.encrypt(good + any_bytes, key)) == 2 * group.size
    except DataError as error:
        assert str(error).startswith(f"{name}: element 2 of 2 ")  # noqa: PT017
        assert key.hex() not in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", ALL)
def test_neither_a_key_nor_an_element_shows_in_text(name: str) -> None:
    group = a_group(name)
    key = group.draw_key()
    with pytest.raises(DataError) as caught:
        group.encrypt(group.hash([b"v"], TAG) + bytes(group.size), key)
    for text in (repr(group), str(group.spec()), str(caught.value)):
        assert key.hex() not in text
        assert str(key) not in text
    assert repr(group) == f"{type(group).__name__}()"


@pytest.mark.parametrize("name", ALL)
def test_keys_are_fresh(name: str) -> None:
    group = a_group(name)
    assert len({group.draw_key() for _ in range(50)}) == 50


@pytest.mark.parametrize("name", ALL)
def test_threads_give_what_one_gives(name: str) -> None:
    group = a_group(name)
    chunks = [[b"%d %d" % (chunk, number) for number in range(9)] for chunk in range(6)]
    key = group.draw_key()
    with ThreadPoolExecutor(3) as pool:
        by_threads = list(pool.map(lambda chunk: group.encrypt_hashed(chunk, TAG, key), chunks))
    assert by_threads == [group.encrypt_hashed(chunk, TAG, key) for chunk in chunks]


@pytest.fixture
def unhurried() -> Iterator[None]:
    """An interpreter that takes its lock from nobody."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", SECURE)
def test_the_interpreter_goes_on_while_a_group_computes(name: str, unhurried: None) -> None:
    """This thread can stop the other, which does nothing else, only if that gives up the lock."""
    group = a_group(name)
    x = group.hash([b"%d" % number for number in range(64)], TAG)
    key = group.draw_key()
    begun = threading.Event()
    stop = threading.Event()
    rounds = []

    def compute() -> None:
        begun.set()
        while not stop.is_set() and len(rounds) < ROUNDS:
            rounds.append(group.encrypt(x, key))

    worker = threading.Thread(target=compute)
    worker.start()
    begun.wait()
    stop.set()
    worker.join()
    assert len(rounds) < ROUNDS
