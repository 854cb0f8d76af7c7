"""The group of prime order made of Curve25519."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tacit.channel.frames import Buffer
from tacit.core.errors import DataError
from tacit.vertical.groups.group import Group
from tacit.vertical.groups.hashing import expand_message_xmd
from tacit.vertical.groups.sodium import POINT, SCALAR, UNIFORM, Sodium, sodium

ORDER = 2**252 + 27742317777372353535851937790883648493  # RFC 9496, section 4.4


@dataclass(frozen=True)
class Ristretto255(Group, name="ristretto255"):
    """The elliptic-curve group ristretto255 (RFC 9496) by libsodium: 32 bytes per element.

    Its order is a prime near 2^252, so every element but the identity generates it, and each has
    one encoding. Hashes are `expand_message_xmd` with SHA-512 (RFC 9380, appendix B) and the
    one-way map of RFC 9496. Secrets are multiplied in constant time.
    """

    size: ClassVar[int] = POINT
    order: ClassVar[int] = ORDER

    def check(self) -> None:
        sodium()

    def draw_key(self) -> bytes:
        return sodium().draw_scalar()

    def hash(self, identifiers: Sequence[bytes], tag: bytes) -> bytes:
        uniform = expand_message_xmd(identifiers, tag, UNIFORM)
        return sodium().map_uniform(b"".join(uniform))

    def encrypt(self, elements: Buffer, key: bytes) -> bytes:
        if len(key) != SCALAR:
            raise DataError(f"{self.name}: expected a key of {SCALAR} bytes, got {len(key)}")
        count = self.count(elements)
        library = sodium()
        products, wrong = library.multiply(elements, key)
        if wrong is not None:
            start = wrong * POINT
            element = bytes(memoryview(elements).cast("B")[start : start + POINT])
            raise self.refusal(wrong, count, _reason(library, element))
        return products

    def _exponent(self, key: bytes) -> int:
        return int.from_bytes(key, "little")

    def _key(self, exponent: int) -> bytes:
        return exponent.to_bytes(SCALAR, "little")


def _reason(library: Sodium, element: bytes) -> str:
    """Why an element cannot be encrypted."""
    if not any(element):
        return "is the identity"
    return "gives the identity" if library.is_valid(element) else "is not a canonical encoding"
