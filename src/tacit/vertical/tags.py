"""Short tags of what is encrypted by all parties, in arrays that are compared as a whole.

Two different identifiers get the same tag with a probability of at most 2^-SECURITY in a session:
with t bits and n x m pairs, the chance is n m / 2^t.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECURITY = 40  # bits
# (n,) byte strings of one length. NumPy drops zeros at their ends where it shows them, but its
# comparisons are exact, since all are equally long.
Tags = NDArray[Any]


def tag_length(sizes: Sequence[int], security: int = SECURITY) -> int:
    """Bytes that keep the chance of a false match in a session below 2^-security.

    They also bound the chance that two different elements of one set look like one that was sent
    twice, which would end the session.

    >>> tag_length([1_000_000, 1_000_000])
    10
    """
    pairs_across = sum(a * b for a, b in combinations(sizes, 2))
    pairs_within = [size * (size - 1) // 2 for size in sizes]
    pairs = max(1, pairs_across, *pairs_within)
    bits = security + (pairs - 1).bit_length()  # the logarithm, rounded up
    return max(1, -(-bits // 8))


def make_tags(elements: bytes, size: int, seal: bytes, length: int) -> bytes:
    """The tag of each element of `size` bytes, by a hash under the session's seal."""
    sealed = hashlib.blake2b(key=seal, digest_size=length)
    tags = []
    for start in range(0, len(elements), size):
        state = sealed.copy()
        state.update(elements[start : start + size])
        tags.append(state.digest())
    return b"".join(tags)


def as_tags(raw: bytes | Iterable[bytes], length: int) -> Tags:
    """Tags that follow each other, as an array."""
    joined = raw if isinstance(raw, bytes) else b"".join(raw)
    return np.frombuffer(joined, dtype=f"S{length}")


def shared_positions(tags: Tags, others_tags: Tags) -> NDArray[np.int64]:
    """The positions in `tags` of those that `others_tags` has too.

    They come in the order of the tags, which is the same on both sides.
    """
    _, positions, _ = np.intersect1d(tags, others_tags, assume_unique=True, return_indices=True)
    return positions.astype(np.int64)


def distinct(tags: Tags) -> bool:
    """Whether no tag occurs twice; np.unique takes seven times as long, and as much more memory."""
    ordered = np.sort(tags)
    return not np.any(ordered[1:] == ordered[:-1])


def sorted_tags(tags: Tags) -> Tags:
    """The tags in their own order, which does not tell whose element each is of."""
    return np.sort(tags)
