"""The worked example, number by number, and what is wrong with it."""

from __future__ import annotations

import pytest

from tacit.core.errors import DataError
from tacit.vertical.groups.group import Buffer
from tacit.vertical.groups.thesis import P, Q, Thesis

ALICE = [b"12345678A", b"87654321B", b"54321678C", b"67891234D"]
BOB = [b"67891234D", b"22222222Y", b"54321678C", b"11111111X"]
KEY_A, KEY_B = (2671390701970302872).to_bytes(8, "big"), (325637035052474817).to_bytes(8, "big")
X_A = [6801962795022291115, 14914775733042932484, 6031741069150041195, 7775431530089967261]
X_B = [7775431530089967261, 15704629945399610882, 6031741069150041195, 8717288097697391268]
Y_A = [4037654302475096183, 7215131381927850152, 7524770399191986516, 4530009952158919715]
Y_B = [709144700394714309, 1186382732300108902, 683568481448076414, 3441729271243177027]
BOTH_A = [
    5211193962823641457,
    7666888661095677275,
    4407230382765344063,
    3478216981347847458,
]  # Alice's, sorted by Y
BOTH_B = [
    3478216981347847458,
    7666888661095677275,
    8512757503240690236,
    6052532624285366477,
]  # Bob's, sorted by Y


def numbers(elements: Buffer) -> list[int]:
    return [int.from_bytes(elements[at : at + 8], "big") for at in range(0, len(elements), 8)]


def elements(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def residue(x: int) -> bool:
    return pow(x, Q, P) == 1


def test_the_published_example_comes_out_number_by_number() -> None:
    group = Thesis()
    hashed_a, hashed_b = group.hash(ALICE, b""), group.hash(BOB, b"any tag")
    assert (numbers(hashed_a), numbers(hashed_b)) == (X_A, X_B)
    once_a, once_b = group.encrypt(hashed_a, KEY_A), group.encrypt(hashed_b, KEY_B)
    assert (numbers(once_a), numbers(once_b)) == (Y_A, Y_B)
    assert group.encrypt_hashed(ALICE, b"", KEY_A) == once_a
    twice_a = numbers(group.encrypt(elements(sorted(Y_A)), KEY_B))
    twice_b = numbers(group.encrypt(elements(sorted(Y_B)), KEY_A))
    assert (twice_a, twice_b) == (BOTH_A, BOTH_B)

    common = set(twice_a) & set(twice_b)
    assert {
        v for y, v in zip(sorted(Y_B), by(Y_B, BOB), strict=True) if pair(y, KEY_A) in common
    } == {
        b"67891234D",
        b"54321678C",
    }
    assert {
        v for y, v in zip(sorted(Y_A), by(Y_A, ALICE), strict=True) if pair(y, KEY_B) in common
    } == {
        b"67891234D",
        b"54321678C",
    }


def by(encrypted: list[int], identifiers: list[bytes]) -> list[bytes]:
    return [v for _, v in sorted(zip(encrypted, identifiers, strict=True))]


def pair(y: int, key: bytes) -> int:
    return numbers(Thesis().encrypt(elements([y]), key))[0]


def test_its_prime_is_safe() -> None:
    assert P == 2 * Q + 1
    assert pow(2, Q - 1, Q) == pow(3, P - 1, P) == 1


def test_it_is_for_one_machine() -> None:
    assert not Thesis.networked


def test_its_hashes_are_no_residues_and_an_odd_key_tells_so() -> None:
    assert not any(residue(x) for x in X_A + X_B)
    assert not any(residue(y) for y in Y_B)
    assert all(residue(y) for y in Y_A)  # e_A is even


def test_under_an_even_key_two_hashes_become_one() -> None:
    x = 7775431530089967261
    once = numbers(Thesis().encrypt(elements([x, P - x, x + P]), KEY_A))
    assert once[0] == once[1] == once[2]


@pytest.mark.parametrize(
    ("x", "reason"),
    [(0, "is zero"), (P, "is zero"), (1, "is the identity"), (P - 1, "gives the identity")],
)
def test_what_would_not_change_is_refused(x: int, reason: str) -> None:
    with pytest.raises(DataError, match=f"^thesis: element 2 of 3 {reason}$"):
        Thesis().encrypt(elements([5, x, 7]), KEY_A)


@pytest.mark.parametrize("key", [b"", bytes(8), (P - 1).to_bytes(8, "big"), b"\xff" * 8])
def test_keys_outside_the_thesiss_are_refused(key: bytes) -> None:
    with pytest.raises(DataError, match="expected a key of 8 bytes, from 1 to 9223372036854771237"):
        Thesis().encrypt(elements([5]), key)
