"""A party's own log of its sessions: who met whom, when, about what, and how it ended.

One line of JSON a session, written before any of the party's data are encrypted. Its last field,
the outcome, has room for what is not known yet, and is written there when the session ends. So the
line of a process that was killed says "not ended".
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tacit.core.errors import DataError, TacitError
from tacit.core.files import expanded, locked

START = b'{"begin": "'  # of each line
OUTCOME = 512  # bytes of an outcome, with the spaces after it
COMPLETED, FAILED = "completed", "failed"
UNENDED = {"status": "not ended", "end": None}
RECENT = timedelta(days=1)


def log_path(folder: Path, party: str) -> Path:
    """Where a party's log lies, unless it is elsewhere."""
    return folder / f"{party}-sessions.jsonl"


class SessionLog:
    """The file. Several processes may write to it; it is readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = expanded(path).absolute()
        with self._appending() as handle:  # what cannot be written to is told before the session
            self._check_is_log(handle)

    def append(self, entry: Mapping[str, Any], outcome: Mapping[str, Any]) -> int:
        """Adds a line; returns where in the file its outcome starts."""
        head = json.dumps(dict(entry))[:-1].encode() + b', "outcome": '
        with self._appending() as handle, locked(handle):
            size = os.fstat(handle).st_size
            torn = b"" if size == 0 or self._read(size - 1, 1) == b"\n" else b"\n"
            line = torn + head + _padded(outcome) + b"}\n"
            self._write(handle, line)
        return size + len(torn) + len(head)

    def _write(self, handle: int, line: bytes) -> None:
        try:
            if os.write(handle, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def conclude(self, place: int, before: Mapping[str, Any], outcome: Mapping[str, Any]) -> bool:
        """Writes an outcome in the place of the one before, if that is still there."""
        try:
            is_there = self._read(place, OUTCOME) == _padded(before)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            return False
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(_padded(outcome))
            file.flush()
            os.fsync(file.fileno())
        return True

    def entries(self) -> Iterator[dict[str, Any]]:
        """All lines, but for those that a full disk has cut short."""
        with self.path.open("rb") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(entry, dict):
                    yield entry

    def _check_is_log(self, handle: int) -> None:
        """Refuses a file that is something else, such as a table: lines would be added to it."""
        start = os.pread(handle, len(START), 0)
        if start and start != START:
            raise DataError(
                f"{self.path} is not a log of sessions; name another file", parameters=("log",)
            )

    def _read(self, place: int, count: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(place)
            return file.read(count)

    @contextmanager
    def _appending(self) -> Iterator[int]:
        """The file, opened for lines at its end; what cannot take any is told in one line."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        try:
            handle = os.open(self.path, flags, 0o600)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise OSError(errno.EINVAL, "it is not a regular file")
        except OSError as error:
            raise _unwritable(self.path, error) from None
        try:
            yield handle
        finally:
            os.close(handle)


@dataclass
class Audit:
    """The lines of one run in its party's log.

    A run has one session, or several if it starts over. `terms` are what the party asked for, and
    what all have agreed on in a session that has a name.
    """

    log: SessionLog
    party: str
    peers: Sequence[str]
    purpose: str
    terms: Mapping[str, Any]

    def __post_init__(self) -> None:
        self._entry: dict[str, Any] | None = None  # of the session that has not ended
        self._place = 0  # of its outcome

    def brought_lately(self) -> dict[str, int]:
        """What each peer has brought to earlier attempts, by this process or another.

        These are recent sessions for the same purpose that were agreed and did not complete. Their
        terms may be others, and so may this party's set: it may have changed by a row.
        """
        brought: dict[str, int] = {}
        for entry in self.log.entries():
            try:
                if self._is_earlier_attempt(entry):
                    for peer in entry["peers"]:
                        brought[peer] = brought.get(peer, 0) + int(entry["sizes"][peer])
            except (KeyError, TypeError, ValueError):  # a line of somebody else's making
                continue
        return brought

    def _is_earlier_attempt(self, entry: Mapping[str, Any]) -> bool:
        subject = (entry["party"], entry["purpose"])
        if subject != (self.party, self.purpose) or not entry["session"]:
            return False
        if entry["outcome"]["status"] == COMPLETED:
            return False
        return datetime.fromisoformat(entry["begin"]) >= datetime.now(UTC) - RECENT

    def begin(self, sizes: Mapping[str, int], session: str | None) -> None:
        """Writes the line of a session; without a name, of one that was not agreed on."""
        self.fail("started over")
        self._entry = {
            "begin": _now(),
            "party": self.party,
            "peers": list(self.peers),
            "purpose": self.purpose,
            "session": session,
            "terms": dict(self.terms),
            "sizes": dict(sizes),
        }
        self._place = self.log.append(self._entry, UNENDED)

    def complete(self, **learnt: Any) -> None:
        """Writes the end of the session, with what was learnt."""
        self._end({"status": COMPLETED, "end": _now(), **learnt})

    def fail(self, reason: str) -> None:
        """Writes why the session ended, if there is one that has not."""
        self._end({"status": FAILED, "end": _now(), "reason": reason})

    def _end(self, outcome: Mapping[str, Any]) -> None:
        if self._entry is None:
            return
        if not self.log.conclude(self._place, UNENDED, outcome):
            self.log.append(self._entry, outcome)  # somebody has put another file there
        self._entry = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, TacitError | OSError):
            self.fail(str(error))
        elif isinstance(error, Exception):
            self.fail(type(error).__name__)  # its text may hold anything
        else:
            self.fail("stopped")


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write the log of sessions {path}: {error.strerror}; name another",
        parameters=("log",),
    )


def _padded(outcome: Mapping[str, Any]) -> bytes:
    """The outcome with spaces up to its usual length; a reason that is too long is cut."""
    raw = json.dumps(dict(outcome)).encode()
    reason = str(outcome.get("reason", ""))[:OUTCOME]
    while len(raw) > OUTCOME and reason:
        reason = reason[:-10]
        raw = json.dumps({**outcome, "reason": f"{reason}..."}).encode()
    if len(raw) > OUTCOME:
        raise ValueError(f"an outcome has at most {OUTCOME} bytes, this one {len(raw)}")
    return raw.ljust(OUTCOME)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
