"""Passphrases of private keys: from the caller, the environment or a terminal.

They are never part of a command line, which other users of a machine can read.
"""

from __future__ import annotations

import getpass
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tacit.core.errors import DataError

# A passphrase, or what asks for it; None asks on the terminal. Before anybody is asked, the
# environment is.
Passphrase: TypeAlias = str | Callable[[str], str] | None

VARIABLE = "TACIT_PASSPHRASE"
SHORTEST = 8  # characters of a new one
LONGEST = 1023  # bytes, as OpenSSL reads them


def passphrase_for(key_file: Path, passphrase: Passphrase) -> bytes:
    """The passphrase of the encrypted key in this file."""
    text = passphrase
    if not isinstance(text, str):
        text = os.environ.get(VARIABLE)
    if not text and (passphrase is None or callable(passphrase)):
        text = (passphrase or ask)(f"passphrase of {key_file}: ")
    if not isinstance(text, str):
        raise DataError(
            "passphrase: expected text, or a function that asks for it",
            parameters=("passphrase",),
        )
    return encoded(text)


def new_passphrase(key_file: Path) -> str:
    """A passphrase for a new key: the environment's, or what is typed twice on the terminal."""
    text = os.environ.get(VARIABLE)
    if not text:
        text = ask(f"new passphrase for {key_file}, of {SHORTEST} characters or more: ")
        encoded_new(text)  # refuses it before it is typed again
        if ask("the same again: ") != text:
            raise DataError("the two passphrases differ; nothing was made")
    return text


def encoded_new(text: str) -> bytes:
    """The passphrase as it encrypts a key, if it may protect a new one."""
    if len(text) < SHORTEST:
        raise DataError(f"a passphrase has at least {SHORTEST} characters; five words are good")
    return encoded(text)


def encoded(text: str) -> bytes:
    """The passphrase as it encrypts a key."""
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > LONGEST:
        raise DataError(f"a passphrase has at most {LONGEST} bytes")
    return content


def ask(question: str) -> str:
    """What is typed on the terminal, without showing it."""
    if sys.stdin is None or not sys.stdin.isatty():
        what = question.rstrip(": ")
        raise DataError(
            f"there is no terminal to ask for the {what}; set {VARIABLE}",
            parameters=("passphrase",),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # never where it would be shown
        try:
            return getpass.getpass(question)
        except KeyboardInterrupt:
            _end_line()
            raise
        except (EOFError, OSError, UnicodeDecodeError, getpass.GetPassWarning):
            _end_line()
            raise DataError(f"no passphrase could be read; type it, or set {VARIABLE}") from None


def _end_line() -> None:
    """Leaves the line of a question that was not answered."""
    sys.stderr.write("\n")
