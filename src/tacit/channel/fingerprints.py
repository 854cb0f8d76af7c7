"""Fingerprints of keys, in the one form in which people compare them."""

from __future__ import annotations

import hashlib
import re

from tacit.core.errors import DataError, shown

SEPARATORS = re.compile(r"[\s:-]+")


def grouped(digest: bytes) -> str:
    """A digest in groups of four digits, to be read out over the telephone.

    >>> grouped(bytes(range(6)))
    '0001 0203 0405'
    """
    return digest.hex(" ", 2)


def parse_fingerprint(text: str) -> str:
    """A SHA-256 that somebody has typed, in the form in which fingerprints are shown."""
    digits = SEPARATORS.sub("", text)
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise DataError(
            f"expected 64 hexadecimal digits, as tacit cert show prints them, got {shown(text)}"
        )
    return grouped(digest)
