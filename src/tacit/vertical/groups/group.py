"""Commutative encryption f_e(x) = x^e in a group.

Parties that encrypt in either order arrive at the same element.

R. Agrawal, A. Evfimievski, R. Srikant: Information sharing across private databases, SIGMOD 2003.
An identifier v is hashed to an element h(v), which a random oracle might have chosen; each party
raises it to its own secret.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tacit.channel.frames import Buffer
from tacit.core.errors import DataError
from tacit.core.registry import Registered


@dataclass(frozen=True)
class Group(Registered, family="groups", home="tacit.vertical.groups"):
    """Base of the groups: elements of one size in bytes, one after the other.

    A call works on its elements in the calling thread, and releases the interpreter's lock while it
    computes; whoever has many elements gives shares of them to a pool of threads.
    """

    size: ClassVar[int]  # bytes of an element
    order: ClassVar[int]  # exponents that differ by it do the same
    networked: ClassVar[bool] = True  # whether it may be used between machines

    def check(self) -> None:
        """Refuses a machine that lacks what the group needs, before any data are read."""

    @abstractmethod
    def draw_key(self) -> bytes:
        """A fresh secret from the system's cryptographic generator."""

    @abstractmethod
    def hash(self, identifiers: Sequence[bytes], tag: bytes) -> bytes:
        """The elements h(v); another tag gives unrelated elements."""

    @abstractmethod
    def encrypt(self, elements: Buffer, key: bytes) -> bytes:
        """The elements x^key; refuses what is no element of the group, and the neutral element."""

    def encrypt_hashed(self, identifiers: Sequence[bytes], tag: bytes, key: bytes) -> bytes:
        """The elements h(v)^key."""
        return self.encrypt(self.hash(identifiers, tag), key)

    def blind(self, key: bytes) -> tuple[bytes, bytes]:
        """A fresh key, and the factor that turns what it encrypts into what `key` encrypts.

        Neither alone says anything of `key`. `unblind` applies the factor.
        """
        blinded = self._draw_blinding_key()
        while math.gcd(self._exponent(blinded), self.order) > 1:  # not where the order is a prime
            blinded = self._draw_blinding_key()
        inverse = pow(self._exponent(blinded), -1, self.order)
        factor = self._exponent(key) * inverse % self.order
        return blinded, factor.to_bytes(self.size, "big")

    def _draw_blinding_key(self) -> bytes:
        """A key that may be any exponent: the quotient of two short ones would tell both."""
        return self.draw_key()

    def unblind(self, key: bytes, factor: bytes) -> bytes:
        """A key that does what `key` and the factor do, in one encryption."""
        number = int.from_bytes(factor, "big")
        if len(factor) != self.size or not 0 < number < self.order:
            raise DataError(f"{self.name}: expected a factor of {self.size} bytes below the order")
        return self._key(self._exponent(key) * number % self.order)

    @abstractmethod
    def _exponent(self, key: bytes) -> int:
        """The number to which a key raises elements."""

    @abstractmethod
    def _key(self, exponent: int) -> bytes:
        """The key that raises elements to this number."""

    def count(self, elements: Buffer) -> int:
        """How many elements these are; refuses a fraction of one."""
        length = memoryview(elements).nbytes
        if length % self.size:
            raise DataError(
                f"{self.name}: expected elements of {self.size} bytes each, got {length} bytes"
            )
        return length // self.size

    def refusal(self, position: int, count: int, reason: str) -> DataError:
        """An error that says what is wrong with an element, and never what the element is.

        Positions count from 0 here and from 1 in the message.
        """
        return DataError(f"{self.name}: element {position + 1} of {count} {reason}")
