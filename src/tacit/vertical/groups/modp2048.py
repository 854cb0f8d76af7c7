"""Quadratic residues modulo a safe prime: the group of the textbooks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.channel.frames import Buffer
from tacit.core.errors import DataError
from tacit.vertical.groups.gmp import gmp
from tacit.vertical.groups.group import Group
from tacit.vertical.groups.hashing import expand_message_xmd

P = int(  # RFC 3526, section 3, group 14
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22"
    "514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6"
    "F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3D"
    "C2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB"
    "9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E8603"
    "9B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
Q = P // 2  # also a prime, and the number of residues
KEY = 32  # bytes
# Bytes beyond P's, so that remainders are uniform to within 2^-128 (RFC 9380, section 5).
SURPLUS = 16


@dataclass(frozen=True)
class Modp2048(Group, name="modp2048"):
    """Quadratic residues modulo the 2048-bit safe prime of RFC 3526 by gmpy2: 256 bytes per
    element, and slow.

    Hashes are `expand_message_xmd` with SHA-512 to 2176 bits, reduced and squared, so that all are
    residues. Keys have 256 bits: modulo a safe prime, an exponent of twice the 112 bits of security
    is considered as good as a long one (RFC 3526, section 8; NIST SP 800-56A revision 3, section
    5.6.1.1.1; van Oorschot and Wiener 1996), which takes seven times as long. The Jacobi symbol
    tells whether an element is a residue, in 3 % of the time of its power. Powers are computed by
    gmpy2's functions for lists, because only these release the interpreter's lock. Their time
    depends on the key: if others can measure it closely, use x25519 or ristretto255. Keys that
    blind, and that of a party that removes a blinding factor, are as long as the order: from the
    quotient of two short keys, Euclid's algorithm finds both.
    """

    size: ClassVar[int] = 256
    order: ClassVar[int] = Q

    def check(self) -> None:
        gmp(self.name)

    def draw_key(self) -> bytes:
        number = 1 + secrets.randbelow(2 ** (8 * KEY) - 1)
        return number.to_bytes(KEY, "big")

    def _draw_blinding_key(self) -> bytes:
        return self._key(1 + secrets.randbelow(Q - 1))

    def hash(self, identifiers: Sequence[bytes], tag: bytes) -> bytes:
        return self._joined(self._hashed(identifiers, tag))

    def encrypt(self, elements: Buffer, key: bytes) -> bytes:
        count = self.count(elements)
        numbers = self._numbers(elements)
        jacobi = gmp(self.name).jacobi
        p = gmp(self.name).mpz(P)
        for position, x in enumerate(numbers):
            if not 1 < x < p or jacobi(x, p) != 1:
                raise self.refusal(position, count, _reason(x))
        return self._powers(numbers, key)

    def encrypt_hashed(self, identifiers: Sequence[bytes], tag: bytes, key: bytes) -> bytes:
        return self._powers(self._hashed(identifiers, tag), key)  # squares, which need no check

    def _hashed(self, identifiers: Sequence[bytes], tag: bytes) -> list[Any]:
        read = gmp(self.name).mpz.from_bytes
        p = gmp(self.name).mpz(P)
        uniform = expand_message_xmd(identifiers, tag, self.size + SURPLUS)
        return [(read(raw, "big") % p) ** 2 % p for raw in uniform]

    def _numbers(self, elements: Buffer) -> list[Any]:
        raw = memoryview(elements).cast("B")
        read = gmp(self.name).mpz.from_bytes
        starts = range(0, len(raw), self.size)
        return [read(bytes(raw[start : start + self.size]), "big") for start in starts]

    def _powers(self, numbers: list[Any], key: bytes) -> bytes:
        """x^e is the identity for no other x: the order is a prime, and larger than e."""
        e = self._exponent(key)
        if not 0 < e < Q:
            raise DataError(
                f"{self.name}: expected a key of {KEY} bytes, not all of them zero, "
                f"got {len(key)} bytes"
            )
        return self._joined(gmp(self.name).powmod_base_list(numbers, e, P))

    def _exponent(self, key: bytes) -> int:
        return int.from_bytes(key, "big")

    def _key(self, exponent: int) -> bytes:
        return exponent.to_bytes(self.size, "big")

    def _joined(self, numbers: list[Any]) -> bytes:
        return b"".join([x.to_bytes(self.size, "big") for x in numbers])


def _reason(x: int) -> str:
    """Why x is no element."""
    if x >= P:
        return "is not a canonical encoding"
    if x == 0:
        return "is zero"
    if x == 1:
        return "is the identity"
    return "is not a quadratic residue"
