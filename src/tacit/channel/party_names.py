"""Names of parties and of consortia, as they fit into certificates."""

from __future__ import annotations

import re

from tacit.core.errors import DataError, shown

PARTY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
RESERVED = {
    "ca": "ca.pem is the authority's",
    "all": "where a party can be named, all means every party",
}
LONGEST_CONSORTIUM = 64  # bytes


def check_party_name(name: str) -> str:
    """The name, if it can be a DNS label in a certificate.

    >>> check_party_name("Alice")
    Traceback (most recent call last):
    tacit.core.errors.DataError: 'Alice' cannot name a party; expected up to 63 lower-case letters,
    digits and hyphens, no hyphen first or last, such as 'alice'
    """
    if name in RESERVED:
        raise DataError(f"{name!r} cannot name a party: {RESERVED[name]}; choose another name")
    if not PARTY_NAME.fullmatch(name):
        likely = re.sub(r"[^a-z0-9]+", "-", name.lower())[:63].strip("-") or "alice"
        raise DataError(
            f"{shown(name)} cannot name a party; expected up to 63 lower-case letters, "
            f"digits and hyphens, no hyphen first or last, such as {likely!r}"
        )
    return name


def check_consortium_name(name: str) -> str:
    """The name, if it fits a certificate."""
    is_line = bool(name) and name == name.strip() and name.isprintable()
    if not is_line or len(name.encode()) > LONGEST_CONSORTIUM:
        raise DataError(
            f"{shown(name)} cannot name a consortium; expected 1 to 64 letters, digits, spaces "
            "or other signs on one line, such as 'heart-study'"
        )
    return name
