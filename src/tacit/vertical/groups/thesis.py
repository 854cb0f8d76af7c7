"""The worked example of a protocol, for reading and for tests."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tacit.channel.frames import Buffer
from tacit.core.errors import DataError
from tacit.vertical.groups.group import Group

P = 9223372036854771239
Q = 4611686018427385619  # P = 2 Q + 1


@dataclass(frozen=True)
class Thesis(Group, name="thesis"):
    """A 63-bit prime and the last 8 bytes of SHA-1, for a worked example: insecure, and only for
    one machine.

    It reproduces the numbers of "Privacy Preserving Machine Learning" (J. Sempere Hernández, 2024),
    and shows what a group for this purpose must not be. Logarithms modulo a prime of 63 bits are
    found in seconds. Hashes are not squared: those of the example are all non-residues. With an odd
    key, a residue stays a residue and a non-residue stays a non-residue, so an encryption tells one
    bit of what it hides. An even key takes x and P - x to the same power, so two identifiers can
    become one. Hashes have 64 bits and are not reduced, so x and x + P collide too. The tag is
    ignored: all who use it share one hash.
    """

    size: ClassVar[int] = 8
    order: ClassVar[int] = P - 1  # hashes are not all residues
    networked: ClassVar[bool] = False

    def draw_key(self) -> bytes:
        number = 1 + secrets.randbelow(Q - 1)
        return number.to_bytes(self.size, "big")

    def hash(self, identifiers: Sequence[bytes], tag: bytes) -> bytes:
        digests = [hashlib.sha1(v, usedforsecurity=False).digest() for v in identifiers]
        return b"".join([digest[-self.size :] for digest in digests])

    def encrypt(self, elements: Buffer, key: bytes) -> bytes:
        e = self._exponent(key)
        count = self.count(elements)
        if not 0 < e < self.order:
            raise DataError(f"{self.name}: expected a key of {self.size} bytes, from 1 to {P - 2}")
        powers = []
        for position, x in enumerate(self._numbers(elements)):
            power = pow(x, e, P)
            if power <= 1:
                raise self.refusal(position, count, _reason(x))
            powers.append(power.to_bytes(self.size, "big"))
        return b"".join(powers)

    def _exponent(self, key: bytes) -> int:
        return int.from_bytes(key, "big")

    def _key(self, exponent: int) -> bytes:
        return exponent.to_bytes(self.size, "big")

    def _numbers(self, elements: Buffer) -> list[int]:
        raw = memoryview(elements).cast("B")
        starts = range(0, len(raw), self.size)
        return [int.from_bytes(raw[start : start + self.size], "big") for start in starts]


def _reason(x: int) -> str:
    """Why x cannot be encrypted."""
    if x % P == 0:
        return "is zero"
    if x % P == 1:
        return "is the identity"
    return "gives the identity"
