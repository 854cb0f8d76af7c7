"""Intel's crypto_mb: eight scalar multiplications at once, where the processor has AVX-512 IFMA.

The package ipp-crypto holds the library and does not say that it needs intel-cmplr-lib-rt, whose libraries are loaded
first: no search path leads to them. Functions of a `ctypes.CDLL` release the interpreter's lock while they run.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import MissingDependencyError, StudyError

POINT, SCALAR, LANES, POINTER = 32, 32, 8, 8  # bytes, bytes, at once, bytes
RUNTIME = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so")
SECRET = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"  # RFC 7748, section 5.2
GIVEN = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
PRODUCT = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


class CryptoMb:
    """The function X25519 of RFC 7748, for many points and one scalar."""

    def __init__(self, library: ctypes.CDLL) -> None:
        applicable = library["mbx_is_crypto_mb_applicable"]
        applicable.argtypes, applicable.restype = [ctypes.c_uint64], ctypes.c_int
        self._x25519 = library["mbx_x25519_mb8"]
        self._x25519.argtypes, self._x25519.restype = [ctypes.c_void_p] * 3, ctypes.c_uint32
        self.works = bool(applicable(0)) and self._knows_the_answer()

    def multiply(self, points: bytes | memoryview, scalar: bytes) -> tuple[bytes, int | None]:
        """Each point times the scalar, in constant time, and where the first is whose product is zero."""
        given, by = np.frombuffer(points, np.uint8), np.frombuffer(scalar, np.uint8)
        count = len(given) // POINT
        lanes = np.arange(-(-count // LANES) * LANES)
        products = np.empty(len(lanes) * POINT, np.uint8)
        to = _addresses(products, lanes)
        source = _addresses(
            given, np.minimum(lanes, count - 1)
        )  # the last one also fills the last eight
        key = _addresses(by, np.zeros(LANES, int))
        for first in range(0, len(lanes), LANES):
            at = first * POINTER
            if status := self._x25519(
                to.ctypes.data + at, key.ctypes.data, source.ctypes.data + at
            ):
                return b"", first + next(
                    lane for lane in range(LANES) if (status >> (4 * lane)) & 15
                )
        return products[: count * POINT].tobytes(), None

    def _knows_the_answer(self) -> bool:
        return (
            self.multiply(bytes.fromhex(GIVEN) * LANES, bytes.fromhex(SECRET))[0]
            == bytes.fromhex(PRODUCT) * LANES
        )


def _addresses(array: Any, places: Any) -> Any:
    return array.ctypes.data + places.astype(np.uint64) * np.uint64(POINT)


@functools.cache
def crypto_mb() -> CryptoMb:
    """crypto_mb, loaded once; refuses a machine without it, and a processor that it is not for."""
    try:
        found = CryptoMb(_library())
    except (AttributeError, OSError):
        raise MissingDependencyError(
            'x25519 needs crypto_mb; run: pip install "tacit[crypto-mb]"'
        ) from None
    if not found.works:
        raise StudyError(
            "x25519 needs a processor with AVX-512 IFMA, which this is not; take ristretto255"
        )
    return found


def _library() -> ctypes.CDLL:
    """From where pip installs it, or from where the system looks."""
    folder = Path(sys.prefix) / "lib"
    for name in RUNTIME:
        with suppress(OSError):
            ctypes.CDLL(str(folder / name))
    try:
        return ctypes.CDLL(str(folder / "libcrypto_mb.so"))
    except OSError:
        return ctypes.CDLL("libcrypto_mb.so")
