"""The exceptions a user meets: one line with what was expected, what came and what to do."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONGEST_LINE = 1000
NOT_CONNECTED = re.compile(r"\[Errno (\d+)\] Connect call failed")  # to one address, or several
BEING_BOUND = re.compile(r" \(while attempting to bind .*")


class TacitError(Exception):
    """Anything that the user can fix; the command line prints it and exits with 2.

    `parameters` names those of the call that the text is about, perhaps each with a value that
    would help. The command line, which knows its options, adds them to the text. `details` are
    errors that the text sums up, which the command line lists. The text is one line of a bearable
    length, without what could command a terminal, whatever it quotes.
    """

    def __init__(
        self,
        text: str = "",
        *,
        parameters: Iterable[str] | Mapping[str, Any] = (),
        details: Sequence[TacitError] = (),
    ) -> None:
        self.head = text  # what is said before the details
        self.details = tuple(details)
        if self.details:
            listed = "; ".join(map(str, self.details))
            text = f"{text}: {listed}" if text else listed
        line = " ".join(text.splitlines())
        if len(line) > LONGEST_LINE:
            line = f"{line[: LONGEST_LINE - 3]}..."
        super().__init__(printable(line, LONGEST_LINE))
        self.parameters = tuple(parameters)
        self.values = dict(parameters) if isinstance(parameters, Mapping) else {}


class StudyError(TacitError):
    """A study, a method or one of their settings makes no sense."""


class DataError(TacitError):
    """A file, a table or a split of it cannot be used."""


class MissingDependencyError(TacitError):
    """An optional package is not installed; the text names the command that installs it."""


def suggest(wrong: str, names: Iterable[str]) -> str:
    """Ends an error about an unknown name: with the name that was probably meant, or with all.

    >>> suggest("fedpox", ["fedavg", "fedprox"])
    'did you mean fedprox?'
    """
    ordered = sorted(names)
    close = difflib.get_close_matches(wrong, ordered, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(ordered)}"


def printable(text: str, most: int = 200) -> str:
    r"""A text from outside as a terminal may show it.

    >>> printable("alice\x1b[2J")
    'alice\\x1b[2J'
    """
    letters = [letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:most]]
    return "".join(letters)


def shown(value: Any, most: int = 80) -> str:
    """A value as an error message shows it: as a file would spell it, and not too long.

    >>> shown(None), shown(True), shown([1] * 100, most=12)
    ('nothing (null)', 'true', '[1, 1, 1,...')
    """
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = " ".join(repr(value).split())
    if len(text) > most:
        return f"{text[: most - 3]}..."
    return text


def system_error_text(error: OSError) -> str:
    """What the system says, and of which file.

    >>> system_error_text(OSError(28, "No space left on device", "runs/a/history.jsonl"))
    'No space left on device: runs/a/history.jsonl'
    """
    file = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{file}"


def system_reason(error: OSError) -> str:
    """What the system says of a connection, without the addresses that Python adds.

    >>> system_reason(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 7050)"))
    'Connection refused'
    """
    failure = NOT_CONNECTED.search(str(error))
    if failure:
        return os.strerror(int(failure[1]))
    return BEING_BOUND.sub("", error.strerror or str(error))
