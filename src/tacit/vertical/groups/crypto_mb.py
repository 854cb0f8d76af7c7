"""Intel's crypto_mb: eight scalar multiplications at once, where the processor has AVX-512 IFMA.

The package ipp-crypto holds the library and does not say that it needs intel-cmplr-lib-rt. The
libraries of that are loaded first, since no search path leads to them. Functions of a `ctypes.CDLL`
release the interpreter's lock while they run.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

POINT = 32  # bytes
SCALAR = 32  # bytes
LANES = 8  # multiplications at once
POINTER = 8  # bytes
STATUS_BITS = 4  # of each lane
RUNTIME = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so")
# The example of RFC 7748, section 5.2: a scalar, a point and their product.
EXAMPLE_SCALAR = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
EXAMPLE_POINT = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
EXAMPLE_PRODUCT = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


class CryptoMb:
    """The function X25519 of RFC 7748, for many points and one scalar."""

    def __init__(self, library: ctypes.CDLL) -> None:
        applicable = library["mbx_is_crypto_mb_applicable"]
        applicable.argtypes = [ctypes.c_uint64]
        applicable.restype = ctypes.c_int
        self._x25519 = library["mbx_x25519_mb8"]
        self._x25519.argtypes = [ctypes.c_void_p] * 3
        self._x25519.restype = ctypes.c_uint32
        self.works = bool(applicable(0)) and self._computes_the_example()

    def multiply(self, points: bytes | memoryview, scalar: bytes) -> tuple[bytes, int | None]:
        """Each point times the scalar, in constant time.

        Where a product is zero there are no products, but the position of the first such point.
        """
        factors = np.frombuffer(points, np.uint8)
        secret = np.frombuffer(scalar, np.uint8)
        count = len(factors) // POINT
        lanes = np.arange(-(-count // LANES) * LANES)
        products = np.empty(len(lanes) * POINT, np.uint8)
        targets = _addresses(products, lanes)
        sources = _addresses(factors, np.minimum(lanes, count - 1))  # the last point fills the rest
        keys = _addresses(secret, np.zeros(LANES, int))
        for first in range(0, len(lanes), LANES):
            offset = first * POINTER
            target = targets.ctypes.data + offset
            source = sources.ctypes.data + offset
            status = self._x25519(target, keys.ctypes.data, source)
            if status:
                return b"", first + _first_lane(status)
        return products[: count * POINT].tobytes(), None

    def _computes_the_example(self) -> bool:
        points = bytes.fromhex(EXAMPLE_POINT) * LANES
        products, _ = self.multiply(points, bytes.fromhex(EXAMPLE_SCALAR))
        return products == bytes.fromhex(EXAMPLE_PRODUCT) * LANES


def _addresses(array: Any, indices: Any) -> Any:
    return array.ctypes.data + indices.astype(np.uint64) * np.uint64(POINT)


def _first_lane(status: int) -> int:
    """The first lane whose status bits are set."""
    mask = (1 << STATUS_BITS) - 1
    return next(lane for lane in range(LANES) if (status >> (STATUS_BITS * lane)) & mask)


@functools.cache
def crypto_mb() -> CryptoMb | None:
    """crypto_mb, loaded once; None where it is not installed, or the processor lacks AVX-512 IFMA.

    None too where it computes something else than RFC 7748.
    """
    try:
        library = CryptoMb(_library())
    except (AttributeError, OSError):
        return None
    return library if library.works else None


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
