"""A party's log of its sessions: whole lines, whoever writes at the same time or dies."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tacit.channel.audit import OUTCOME, RECENT, Audit, SessionLog, log_path
from tacit.core.errors import DataError

SIZES = {"alice": 3, "bob": 5}
WHEN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


@pytest.fixture
def log(tmp_path: Path) -> SessionLog:
    return SessionLog(log_path(tmp_path, "alice"))


def audit_of(log: SessionLog) -> Audit:
    return Audit(log, "alice", ["bob"], "psi", {"column": "nin"})


def lines(log: SessionLog) -> list[dict[str, Any]]:
    text = log.path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_session_is_one_line_of_which_the_outcome_is_the_last_field(log: SessionLog) -> None:
    audit = audit_of(log)
    with audit:
        audit.begin(SIZES, "5e55")
        (before,) = lines(log)
        assert before["outcome"] == {"status": "not ended", "end": None}
        audit.complete(learnt="rows", common=2)
    (entry,) = lines(log)
    assert list(entry) == [
        "begin", "party", "peers", "purpose", "session", "terms", "sizes", "outcome",
    ]  # fmt: skip
    assert (entry["party"], entry["peers"], entry["purpose"]) == ("alice", ["bob"], "psi")
    assert (entry["session"], entry["sizes"], entry["terms"]) == ("5e55", SIZES, {"column": "nin"})
    outcome = entry["outcome"]
    assert re.fullmatch(WHEN, entry["begin"])
    assert re.fullmatch(WHEN, outcome.pop("end"))
    assert outcome == {"status": "completed", "learnt": "rows", "common": 2}
    assert {**before, "outcome": None} == {**entry, "outcome": None}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DataError("bob has gone"), "bob has gone"),
        (ZeroDivisionError("7 of ana"), "ZeroDivisionError"),
        (KeyboardInterrupt(), "stopped"),
        (DataError("löng " * 500), "löng löng"),
    ],
)
def test_a_session_that_fails_says_why(error: BaseException, reason: str, log: SessionLog) -> None:
    audit = audit_of(log)
    audit.begin(SIZES, "5e55")
    with pytest.raises(type(error)), audit:
        raise error
    (entry,) = lines(log)
    assert entry["outcome"]["status"] == "failed"
    assert entry["outcome"]["reason"].startswith(reason)
    assert len(entry["outcome"]["reason"]) < OUTCOME


def test_a_run_that_starts_over_has_a_line_for_each_session(log: SessionLog) -> None:
    with audit_of(log) as audit:
        audit.begin(SIZES, None)
        audit.begin(SIZES, "5e55")
        audit.complete()
    first, second = lines(log)
    assert (first["session"], first["outcome"]["reason"]) == (None, "started over")
    assert (second["session"], second["outcome"]["status"]) == ("5e55", "completed")


def test_a_run_in_which_nobody_came_leaves_no_line(log: SessionLog) -> None:
    with pytest.raises(DataError), audit_of(log):
        raise DataError("nobody came")
    assert log.path.read_bytes() == b""


def test_only_its_owner_may_read_the_file(log: SessionLog) -> None:
    before = os.umask(0)
    try:
        other = SessionLog(log.path.with_name("other.jsonl"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(other.path.stat().st_mode) == 0o600


def test_a_killed_process_leaves_a_line_that_has_not_ended(log: SessionLog) -> None:
    with audit_of(log) as audit:
        audit.begin(SIZES, "1")
        audit.complete()
    program = f"""
import os, signal
from pathlib import Path
from tacit.channel.audit import Audit, SessionLog
audit = Audit(SessionLog(Path({str(log.path)!r})), "alice", ["bob"], "psi", {{}})
audit.begin({SIZES}, "2")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with audit_of(log) as audit:
        audit.begin(SIZES, "3")
        audit.complete()
    statuses = [(entry["session"], entry["outcome"]["status"]) for entry in lines(log)]
    assert statuses == [("1", "completed"), ("2", "not ended"), ("3", "completed")]


def test_sessions_at_the_same_time_keep_their_lines_apart(log: SessionLog) -> None:
    def take_part(number: int) -> None:
        with audit_of(SessionLog(log.path)) as audit:
            audit.begin({"bob": number}, f"{number}")
            audit.complete(common=number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take_part, range(60)))
    entries = lines(log)
    assert sorted(int(entry["session"]) for entry in entries) == list(range(60))
    for entry in entries:
        assert entry["sizes"]["bob"] == entry["outcome"]["common"] == int(entry["session"])


def test_a_line_that_a_full_disk_has_cut_short_spoils_no_other(log: SessionLog) -> None:
    log.path.write_bytes(b'{"party": "alice", "sess')
    with audit_of(log) as audit:
        audit.begin(SIZES, "5e55")
        audit.complete()
    assert [entry["session"] for entry in log.entries()] == ["5e55"]


@pytest.mark.parametrize("content", [b"", b"x" * 4000, None], ids=["emptied", "other", "gone"])
def test_an_outcome_is_never_written_over_something_else(
    content: bytes | None, log: SessionLog
) -> None:
    """Where somebody has put the log away, the line is written anew."""
    with audit_of(log) as audit:
        audit.begin(SIZES, "5e55")
        log.path.unlink()
        if content is not None:
            log.path.write_bytes(content)
        audit.complete()
    assert log.path.read_bytes().startswith(content or b"{")
    (entry,) = log.entries()
    assert (entry["session"], entry["outcome"]["status"]) == ("5e55", "completed")


def test_what_cannot_be_written_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        tmp_path: "Is a directory",
        tmp_path / "none" / "log": "No such file or directory",
        tmp_path / "pipe": "it is not a regular file",
        Path("/dev/null"): "it is not a regular file",
    }
    for path, reason in wrong.items():
        with pytest.raises(DataError, match=f"^cannot write the log of .*: {reason}; ") as refused:
            SessionLog(path)
        assert refused.value.parameters == ("log",)


def entry_of(**changes: Any) -> bytes:
    entry = {
        "begin": datetime.now(UTC).isoformat(),
        "party": "alice",
        "peers": ["bob"],
        "purpose": "psi",
        "session": "5e55",
        "terms": {"column": "nin"},
        "sizes": SIZES,
        "outcome": {"status": "not ended"},
    }
    return json.dumps(entry | changes).encode() + b"\n"


def test_what_peers_brought_to_earlier_attempts_is_counted(log: SessionLog) -> None:
    old = datetime.now(UTC) - RECENT - timedelta(minutes=1)
    counted = [
        entry_of(),
        entry_of(outcome={"status": "failed"}),
        entry_of(peers=["bob", "carol"], sizes={"alice": 3, "bob": 1, "carol": 70}),
        entry_of(terms={"column": "nif"}),
        entry_of(sizes={"alice": 4, "bob": 5}),
    ]
    others = [
        entry_of(outcome={"status": "completed"}),
        entry_of(session=None),
        entry_of(party="dora"),
        entry_of(purpose="sum"),
        entry_of(begin=old.isoformat()),
    ]
    damaged = [
        entry_of(sizes={}),
        entry_of(sizes=None),
        entry_of(outcome=7),
        entry_of(begin="soon"),
        entry_of(begin=datetime.now().isoformat()),  # without a zone
        b"[7]\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
    ]
    log.path.write_bytes(b"".join(counted + others + damaged))
    assert audit_of(log).brought_lately() == {"bob": 21, "carol": 70}


def test_a_full_disk_is_told_with_the_file(
    log: SessionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(handle: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(DataError) as refused:
        audit_of(log).begin(SIZES, "5e55")
    assert str(refused.value).endswith(f"{log.path}: No space left on device; name another")
    assert refused.value.parameters == ("log",)
