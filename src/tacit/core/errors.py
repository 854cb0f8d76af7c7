"""The few exceptions a user meets. Each carries one line: what was expected, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class TacitError(Exception):
    """Anything that the user can fix; the command line prints it and exits with 2.

    `parameters` names those of the call that the text is about. The command line, which knows its
    options, adds them to the text.
    """

    def __init__(self, text: str = "", *, parameters: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.parameters = tuple(parameters)


class StudyError(TacitError):
    """A study, a method or one of their settings makes no sense."""


class DataError(TacitError):
    """A file, a table or a split of it cannot be used."""


class MissingDependencyError(TacitError):
    """An optional package is not installed; the text names the command that installs it."""


def suggest(wrong: str, known: Iterable[str]) -> str:
    """Ends an error about an unknown name with what was probably meant, or with all that is known.

    >>> suggest("fedpox", ["fedavg", "fedprox"])
    'did you mean fedprox?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


def shown(value: Any, most: int = 80) -> str:
    """A value as an error message shows it: as a file would spell it, and not too long.

    >>> shown(None), shown(True), shown([1] * 100, most=12)
    ('nothing (null)', 'true', '[1, 1, 1,...')
    """
    if value is None or isinstance(value, bool):
        return {None: "nothing (null)", True: "true", False: "false"}[value]
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
