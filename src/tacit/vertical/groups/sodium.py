"""libsodium's ristretto255 and X25519: the system's library, or the copy in the package rbcl.

Functions of a `ctypes.CDLL` release the interpreter's lock while they run. Addresses are passed as
integers, which costs a microsecond per element where buffers would cost several.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tacit.channel.frames import Buffer
from tacit.core.errors import MissingDependencyError

POINT, SCALAR, UNIFORM = 32, 32, 64  # bytes
NAMES = ("libsodium.so.26", "libsodium.so.23", "libsodium.so", "libsodium.dylib", "libsodium.dll")


class Sodium:
    """The few functions that are needed, with their types.

    Raises AttributeError for a library older than 1.0.18.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._from_hash = _function(library, "crypto_core_ristretto255_from_hash", 2)
        self._multiply = _function(library, "crypto_scalarmult_ristretto255", 3)
        self._x25519 = _function(library, "crypto_scalarmult_curve25519", 3)
        self._is_valid = _function(library, "crypto_core_ristretto255_is_valid_point", 1)
        self._random = _function(library, "crypto_core_ristretto255_scalar_random", 1)
        start = _function(library, "sodium_init", 0)
        if start() < 0:
            raise OSError("libsodium did not start")

    def map_uniform(self, uniform: bytes) -> bytes:
        """A point for each 64 bytes: the one-way map of RFC 9496, section 4.3.4."""
        hashes = np.frombuffer(uniform, np.uint8)
        points = np.empty(len(hashes) // UNIFORM * POINT, np.uint8)
        targets = _addresses(points, POINT)
        sources = _addresses(hashes, UNIFORM)
        for target, source in zip(targets, sources, strict=True):
            self._from_hash(target, source)
        return points.tobytes()

    def multiply(self, points: Buffer, scalar: bytes) -> tuple[bytes, int | None]:
        """Each point of ristretto255 times the scalar, in constant time.

        Where a point cannot be multiplied there are no products, but the position of the first such
        point. libsodium refuses what does not decode (RFC 9496, section 4.3.1) and a product that
        is the identity.
        """
        return self._products(self._multiply, points, scalar)

    def multiply_x25519(self, coordinates: Buffer, scalar: bytes) -> tuple[bytes, int | None]:
        """The same with the function X25519 of RFC 7748, which refuses points of low order."""
        return self._products(self._x25519, coordinates, scalar)

    def _products(
        self, multiply: Callable[..., int], points: Buffer, scalar: bytes
    ) -> tuple[bytes, int | None]:
        factors = np.frombuffer(points, np.uint8)
        secret = np.frombuffer(scalar, np.uint8)
        products = np.empty(len(factors), np.uint8)
        targets = _addresses(products, POINT)
        sources = _addresses(factors, POINT)
        key = secret.ctypes.data
        for position, (target, source) in enumerate(zip(targets, sources, strict=True)):
            if multiply(target, key, source):
                return b"", position
        return products.tobytes(), None

    def is_valid(self, point: bytes) -> bool:
        """Whether 32 bytes encode a point."""
        encoding = np.frombuffer(point, np.uint8)
        return bool(self._is_valid(encoding.ctypes.data))

    def draw_scalar(self) -> bytes:
        """A scalar, uniform from 1 to the group's order minus 1."""
        scalar = np.empty(SCALAR, np.uint8)
        self._random(scalar.ctypes.data)
        return scalar.tobytes()


def _function(library: ctypes.CDLL, name: str, arguments: int) -> Callable[..., int]:
    function = library[name]  # a new object: types set on library.name would be everyone's
    function.argtypes = [ctypes.c_void_p] * arguments
    function.restype = ctypes.c_int
    return function


def _addresses(array: Any, step: int) -> range:
    start = array.ctypes.data
    return range(start, start + len(array), step)


@functools.cache
def sodium() -> Sodium:
    """libsodium, loaded once."""
    for load in (_installed, _bundled):
        for library in load():
            with suppress(AttributeError, OSError):  # too old, or it does not start
                return Sodium(library)
    raise MissingDependencyError(
        'ristretto255 and x25519 need libsodium 1.0.18 or newer; run: pip install "tacit[psi]"'
    )


def _installed() -> Iterator[ctypes.CDLL]:
    """The system's libraries, by their usual names, which is quick, and then by a search."""
    for name in NAMES:
        with suppress(OSError):
            yield ctypes.CDLL(name)
    with suppress(OSError):
        file = ctypes.util.find_library("sodium")
        if file:
            yield ctypes.CDLL(file)


def _bundled() -> Iterator[ctypes.CDLL]:
    """The library in rbcl, whose import writes it to a temporary file and leaves it there."""
    try:
        from rbcl import _sodium as library
    except (ImportError, OSError):  # absent, or for another machine
        return
    file = Path(library._name)
    if file.parent == Path(tempfile.gettempdir()):
        with suppress(OSError):  # Windows keeps what is loaded
            file.unlink()
    yield library
