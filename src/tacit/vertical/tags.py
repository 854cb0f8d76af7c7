"""Short tags of what is encrypted by all parties, in arrays that are compared as a whole.

Two different identifiers get the same tag with a probability of at most 2^-SECURITY in a session: with t bits and
n x m pairs, the chance is n m / 2^t.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECURITY = 40  # bits
Tags = NDArray[
    Any
]  # (n,) of fixed-length byte strings; NumPy's comparison is exact, since all are equally long


def tag_length(sizes: Sequence[int], security: int = SECURITY) -> int:
    """Bytes that keep the chance of a false match in a session below 2^-security.

    And the chance that two different elements of one set look like one sent twice, which ends a session.

    >>> tag_length([1_000_000, 1_000_000])
    10
    """
    across, within = (
        sum(a * b for a, b in combinations(sizes, 2)),
        [size * (size - 1) // 2 for size in sizes],
    )
    bits = security + (max(1, across, *within) - 1).bit_length()  # the logarithm, rounded up
    return max(1, -(-bits // 8))


def make_tags(elements: bytes, size: int, seal: bytes, length: int) -> bytes:
    """The tag of each element, by a hash under the session's seal."""
    sealed = hashlib.blake2b(key=seal, digest_size=length)
    found = []
    for start in range(0, len(elements), size):
        one = sealed.copy()
        one.update(elements[start : start + size])
        found.append(one.digest())
    return b"".join(found)


def as_tags(raw: bytes | Iterable[bytes], length: int) -> Tags:
    """Tags one behind the other, as an array."""
    joined = raw if isinstance(raw, bytes) else b"".join(raw)
    return np.frombuffer(joined, dtype=f"S{length}")


def common(mine: Tags, theirs: Tags) -> NDArray[np.int64]:
    """Places in `mine` of the tags that `theirs` has too, in the order of the tags: the same order on both sides."""
    found = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)[1]
    return found.astype(np.int64)


def distinct(tags: Tags) -> bool:
    return len(np.unique(tags)) == len(tags)
