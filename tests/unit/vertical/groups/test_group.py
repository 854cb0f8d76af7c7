"""What every group owes to the protocol."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import DataError, MissingDependencyError, StudyError
from tacit.vertical.groups.group import Group

TAG = b"tacit test"
ALL = list(Group.known())
SECURE = [name for name in ALL if Group.find(name).networked]
identifiers = st.lists(st.binary(max_size=40), max_size=4, unique=True)


def a_group(name: str) -> Group:
    group = Group.build(name)
    try:
        group.check()
    except (MissingDependencyError, StudyError) as error:
        pytest.skip(str(error))
    return group


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8, deadline=None)
@given(found=identifiers)
def test_encryptions_commute(name: str, found: list[bytes]) -> None:
    group = a_group(name)
    a, b = group.draw_key(), group.draw_key()
    x = group.hash(found, TAG)
    assert len(x) == len(found) * group.size
    assert group.encrypt(group.encrypt(x, a), b) == group.encrypt(group.encrypt(x, b), a)
    assert group.encrypt_hashed(found, TAG, a) == group.encrypt(memoryview(x), a)


@pytest.mark.parametrize("name", SECURE)
def test_other_identifiers_tags_and_keys_give_other_elements(name: str) -> None:
    group = a_group(name)
    found = [str(number).encode() for number in range(40)]
    a, b = group.draw_key(), group.draw_key()
    lists = [
        group.hash(found, TAG),
        group.hash(found, b"another"),
        group.encrypt_hashed(found, TAG, a),
    ]
    lists.append(group.encrypt_hashed(found, TAG, b))
    joined = b"".join(lists)
    assert len(
        {joined[at : at + group.size] for at in range(0, len(joined), group.size)}
    ) == 4 * len(found)


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
    other = data.draw(st.binary(min_size=group.size, max_size=group.size))
    key = group.draw_key()
    try:
        assert len(group.encrypt(good + other, key)) == 2 * group.size
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
        found = list(pool.map(lambda chunk: group.encrypt_hashed(chunk, TAG, key), chunks))
    assert found == [group.encrypt_hashed(chunk, TAG, key) for chunk in chunks]


@pytest.fixture
def unhurried() -> Iterator[None]:
    """An interpreter that takes its lock from nobody."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", SECURE)
def test_the_interpreter_goes_on_while_a_group_computes(name: str, unhurried: None) -> None:
    """A thread that sleeps a millisecond at a time wakes up meanwhile, where a held lock would forbid it."""
    group = a_group(name)
    repeats = {"modp2048": 1, "x25519": 100}.get(name, 20)  # each about 50 ms
    x = group.hash([b"%d" % number for number in range(64)], TAG) * repeats
    done = threading.Event()
    worker = threading.Thread(target=lambda: (group.encrypt(x, group.draw_key()), done.set()))
    worker.start()
    woken = 0
    while not done.is_set():
        time.sleep(0.001)
        woken += 1
    worker.join()
    assert woken >= 3
