"""What a party states before a session, and what it believes of what others state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.channel.frames import ChannelError
from tacit.core.errors import printable, shown

NONCE = 32  # bytes; it is sent in hex
LONGEST_STATEMENT = 1 << 18  # bytes
LONGEST_KEY = 80  # letters of a peer's own that are shown
LAST_STEP = 1 << 62
ATTEMPT = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Difference:
    """How a difference in one of the terms is told; `parameters` are those that set the term."""

    words: str
    parameters: tuple[str, ...] = ()


def _accept(_peer: str, _brings: Mapping[str, Any]) -> None:
    """Nothing is wrong with what the peer brings."""


@dataclass(frozen=True)
class Protocol:
    """What parties agree on before they begin, as one of them states it.

    `terms` have to be the same at all parties, `brings` is this party's own; both hold what JSON
    can. `hear` gets what a peer brings as soon as it is there, `accept` once the terms agree; both
    may refuse it.
    """

    terms: Mapping[str, Any]
    brings: Mapping[str, Any] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)
    hear: Callable[[str, Mapping[str, Any]], None] = _accept
    accept: Callable[[str, Mapping[str, Any]], None] = _accept

    def check_equal(self, me: str, peer: str, theirs: Mapping[str, Any]) -> None:
        """Refuses terms that differ, with the first setting that does."""
        for key in [*self.differences, *self.terms, *theirs]:
            if _as_sent(self.terms, key) != _as_sent(theirs, key):
                difference = self.differences.get(key, Difference(printable(key, LONGEST_KEY)))
                values = _what_differs(self.terms.get(key), theirs.get(key))
                raise ChannelError(
                    f"{me} and {peer} differ in {difference.words}: {' and '.join(values)}",
                    parameters=difference.parameters,
                )


def _what_differs(ours: Any, theirs: Any) -> tuple[str, str]:
    """Both values as they are shown; of two mappings the entries that differ."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = {key for key in [*ours, *theirs] if _as_sent(ours, key) != _as_sent(theirs, key)}
        ours = {key: value for key, value in ours.items() if key in keys}
        theirs = {key: value for key, value in theirs.items() if key in keys}
    return shown(ours), shown(theirs)


def _as_sent(terms: Mapping[str, Any], key: str) -> str:
    """One of the terms in JSON, in which 1, 1.0 and true differ; what is missing is none at all."""
    return json.dumps(terms[key], sort_keys=True) if key in terms else "missing"


def read_statement(peer: str, raw: bytes) -> dict[str, Any]:
    """A peer's statement, of which the shape is checked, and nothing of its meaning."""
    statement = read_plain(peer, raw)
    nonce = statement.get("nonce")
    held = statement.get("held")
    kinds = {key: type(value) for key, value in statement.items() if key != "held"}
    if kinds != {"terms": dict, "brings": dict, "nonce": str} or len(str(nonce)) != 2 * NONCE:
        raise ChannelError(f"{peer} sent terms that this version does not understand")
    statement["held"] = held
    if held is not None and not _is_held(held):
        raise ChannelError(f"{peer} says that it has checkpoints which cannot be")
    return statement


def _is_held(held: Any) -> bool:
    """Whether these can be the steps of checkpoints, each with its attempt."""
    if not isinstance(held, list) or len(held) > 2:
        return False
    return all(isinstance(entry, list) and _is_mark(entry) for entry in held)


def _is_mark(entry: list[Any]) -> bool:
    """Whether it can be the step of a checkpoint and its attempt."""
    if len(entry) != 2:
        return False
    step, attempt = entry
    if type(step) is not int or not 0 < step < LAST_STEP:
        return False
    return is_digest(attempt)


def is_digest(name: Any) -> bool:
    """Whether it can name an attempt, or a session: both have hashes as names."""
    return isinstance(name, str) and ATTEMPT.fullmatch(name) is not None


def read_plain(peer: str, raw: bytes, what: str = "terms") -> dict[str, Any]:
    """A short message in JSON."""
    try:
        values = json.loads(raw) if len(raw) <= LONGEST_STATEMENT else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ChannelError(f"{peer} sent {what} that this version does not understand")
    return values
