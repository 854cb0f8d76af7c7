"""Curve25519 by its first coordinate."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.channel.frames import Buffer
from tacit.core.errors import DataError
from tacit.vertical.groups.crypto_mb import crypto_mb
from tacit.vertical.groups.gmp import gmp
from tacit.vertical.groups.group import Group
from tacit.vertical.groups.hashing import expand_message_xmd
from tacit.vertical.groups.sodium import POINT, SCALAR, sodium

P = 2**255 - 19
A = 486662  # y^2 = x^3 + A x^2 + x
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the generator
COFACTOR = 8
TOP = 2**254  # the highest bit of every key
WIDE = 48  # bytes that are reduced modulo P (RFC 9380, section 8.5)


@dataclass(frozen=True)
class X25519(Group, name="x25519"):
    """X25519 (RFC 7748) by libsodium: 32 bytes per element, and the default; several times as fast
    by Intel's crypto_mb, on processors with AVX-512 IFMA.

    Both give the same bytes, so one party may have the one and another party the other.
    A hash is the first coordinate of RFC 9380's map Elligator 2, so it is on the curve. Half of all
    random coordinates are on its twist, and so are their multiples, which would tell one bit of
    each. One map reaches half of the points. That is enough here: each point that it reaches has
    four preimages, which are easy to find, so a simulator of the protocol can still choose a hash
    as a known multiple of the generator, with two trials each, as it can for a random oracle. Keys
    are multiples of 8, which clears the cofactor. Coordinates that are on the twist, larger than
    the field or of low order are refused. Multiplications take constant time; hashes, by gmpy2, do
    not.
    """

    size: ClassVar[int] = POINT
    order: ClassVar[int] = ORDER

    def check(self) -> None:
        _multiply_by()
        gmp(self.name)

    def draw_key(self) -> bytes:
        return secrets.token_bytes(SCALAR)  # X25519 sets the five bits that are not free

    def hash(self, identifiers: Sequence[bytes], tag: bytes) -> bytes:
        read = gmp(self.name).mpz.from_bytes
        uniform = expand_message_xmd(identifiers, tag, WIDE)
        coordinates = self._mapped([read(raw, "big") for raw in uniform])
        return b"".join([x.to_bytes(POINT, "little") for x in coordinates])

    def encrypt(self, elements: Buffer, key: bytes) -> bytes:
        count = self.count(elements)
        raw = bytes(elements)
        read = gmp(self.name).mpz.from_bytes
        jacobi = gmp(self.name).jacobi
        p = gmp(self.name).mpz(P)
        for position in range(count):
            x = read(raw[position * POINT : (position + 1) * POINT], "little")
            if x >= p or jacobi(x * ((x + A) * x + 1), p) != 1:
                raise self.refusal(position, count, _reason(x))
        return self._products(raw, key)

    def encrypt_hashed(self, identifiers: Sequence[bytes], tag: bytes, key: bytes) -> bytes:
        return self._products(self.hash(identifiers, tag), key)  # on the curve as they are

    def _products(self, elements: bytes, key: bytes) -> bytes:
        if len(key) != SCALAR:
            raise DataError(f"{self.name}: expected a key of {SCALAR} bytes, got {len(key)}")
        products, wrong = _multiply_by()(elements, key)
        if wrong is not None:
            raise self.refusal(wrong, len(elements) // POINT, "gives the identity")
        return products

    def _exponent(self, key: bytes) -> int:
        """The key as X25519 takes it: a multiple of 8 from 2^254 on (RFC 7748, section 5)."""
        number = int.from_bytes(key, "little") % TOP + TOP
        return number - number % COFACTOR

    def _key(self, exponent: int) -> bytes:
        """One of two multiples of 8, s and -s modulo 8 ORDER: they give the same coordinate."""
        number = COFACTOR * (exponent * pow(COFACTOR, -1, ORDER) % ORDER)
        if not TOP <= number < 2 * TOP:
            number = COFACTOR * ORDER - number
        if not TOP <= number < 2 * TOP:  # one exponent in 2^126
            raise DataError(f"{self.name}: no key has this exponent; start again")
        return number.to_bytes(SCALAR, "little")

    def _mapped(self, numbers: list[Any]) -> list[Any]:
        """Elligator 2 (RFC 9380, section 6.7.1, with Z = 2), first coordinates alone.

        x1 = -A / d with d = 1 + 2 u^2, never zero as -1/2 is no square. x1^3 + A x1^2 + x1 is a
        square if and only if -A d (A^2 (1 - d) + d^2), which is d^4 times as much, is one; where it
        is none, x2 = -x1 - A takes its place.
        """
        jacobi = gmp(self.name).jacobi
        p = gmp(self.name).mpz(P)
        denominators = [(1 + 2 * u * u) % p for u in numbers]
        coordinates = []
        for d, inverse in zip(denominators, self._inverses(denominators), strict=True):
            is_square = jacobi(-A * d * (A * A * (1 - d) + d * d), p) != -1
            numerator = -A if is_square else A * (1 - d)
            coordinates.append(numerator * inverse % p)
        return coordinates

    def _inverses(self, numbers: list[Any]) -> list[Any]:
        """All by one inversion, that of their product; each then takes two multiplications."""
        p = gmp(self.name).mpz(P)
        products = [gmp(self.name).mpz(1)]
        for number in numbers:
            products.append(products[-1] * number % p)
        inverse = gmp(self.name).invert(products.pop(), p)  # of the product of all that are left
        inverses = []
        for number, product in zip(reversed(numbers), reversed(products), strict=True):
            inverses.append(inverse * product % p)
            inverse = inverse * number % p
        return inverses[::-1]


def _multiply_by() -> Callable[[bytes, bytes], tuple[bytes, int | None]]:
    """The fastest multiplication that this machine has."""
    fast = crypto_mb()
    return sodium().multiply_x25519 if fast is None else fast.multiply


def _reason(x: int) -> str:
    """Why x is no element."""
    if x >= P:
        return "is not a canonical encoding"
    return "is not on the curve" if x else "is the identity"
