from __future__ import annotations

import builtins
from typing import Any

import pytest

from tacit.core.errors import DataError, MissingDependencyError
from tacit.vertical.groups.hashing import expand_message_xmd
from tacit.vertical.groups.modp2048 import Modp2048, P, Q

gmpy2 = pytest.importorskip("gmpy2")
GROUP = Modp2048()


def number(element: bytes) -> int:
    return int.from_bytes(element, "big")


def wide(x: int) -> bytes:
    return x.to_bytes(256, "big")


def test_its_prime_is_safe_and_that_of_the_rfc() -> None:
    assert gmpy2.is_prime(P)
    assert gmpy2.is_prime(Q)
    assert P == 2 * Q + 1
    with gmpy2.context(precision=2200):
        pi = int(gmpy2.floor(gmpy2.const_pi() * 2**1918))
    assert 2**2048 - 2**1984 - 1 + 2**64 * (pi + 124476) == P


def test_a_hash_is_the_square_of_what_the_message_expands_to() -> None:
    uniform = number(expand_message_xmd([b"v"], b"tag", 272)[0])
    assert number(GROUP.hash([b"v"], b"tag")) == pow(uniform, 2, P)


def test_encryption_is_the_power_and_its_inverse_exponent_undoes_it() -> None:
    key = GROUP.draw_key()
    x = GROUP.hash([b"v"], b"tag")
    y = GROUP.encrypt(x, key)
    assert len(key) == 32
    assert number(y) == pow(number(x), number(key), P)
    assert GROUP.encrypt(y, wide(pow(number(key), -1, Q))) == x


def test_encryptions_are_residues() -> None:
    identifiers = [bytes([k]) for k in range(8)]
    y = GROUP.encrypt_hashed(identifiers, b"tag", GROUP.draw_key())
    assert all(pow(number(y[at : at + 256]), Q, P) == 1 for at in range(0, len(y), 256))


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (0, "is zero"),
        (1, "is the identity"),
        (P - 1, "is not a quadratic residue"),
        (P - 4, "is not a quadratic residue"),  # as -1 is none
        (P, "is not a canonical encoding"),
        (P + 4, "is not a canonical encoding"),
        (2**2048 - 1, "is not a canonical encoding"),
    ],
)
def test_what_is_no_element_is_refused(x: int, reason: str) -> None:
    with pytest.raises(DataError, match=f"^modp2048: element 2 of 3 {reason}$"):
        GROUP.encrypt(wide(4) + wide(x) + wide(9), GROUP.draw_key())


@pytest.mark.parametrize("key", [b"", bytes(32), wide(Q), b"\xff" * 300])
def test_a_key_that_is_no_exponent_is_refused(key: bytes) -> None:
    with pytest.raises(DataError, match="expected a key of 32 bytes, not all of them zero"):
        GROUP.encrypt(wide(4), key)


def test_without_gmpy2_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "gmpy2":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MissingDependencyError, match=r'^modp2048 needs gmpy2; run: pip install "tacit\[psi\]"$'
    ):
        GROUP.check()
