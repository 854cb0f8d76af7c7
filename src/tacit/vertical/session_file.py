"""The small file beside a party's rows that says of which session they are.

Rows of different sessions look alike and do not match.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core.errors import DataError

if TYPE_CHECKING:
    from tacit.vertical.intersection import Intersection

DIGEST = "sha256"


def session_path(rows: Path) -> Path:
    """The file that names the session of these rows.

    >>> print(session_path(Path("alice-common.csv")))
    alice-common.csv.session.json
    """
    return rows.with_name(f"{rows.name}.session.json")


def digest(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, DIGEST).hexdigest()


def describe_session(result: Intersection, rows: Path, rows_digest: str) -> str:
    """The content of that file: who compared what, who learnt it, and the digest of the rows."""
    agreed = result.agreed
    described = {
        "session": result.session,
        "party": result.party,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "parties": agreed["parties"],
        "sizes": dict(result.sizes),
        "compared": agreed["column"],
        "learnt by": agreed["learner"],
        "learnt": agreed["reveal"],
        "common": result.size,
        "rows": {"file": rows.name, DIGEST: rows_digest},
    }
    return json.dumps(described, indent=2) + "\n"


def read_session(rows: Path) -> dict[str, Any]:
    """What is said of the session of these rows, if they are still those of the session."""
    path = session_path(rows)
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        expected = described["rows"][DIGEST]
        str(described["session"])
    except OSError as error:
        raise DataError(f"cannot read the session of {rows}, {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{path} does not describe a session") from None
    if digest(rows) != expected:
        raise DataError(f"{rows} is not the file that {path} describes; it was changed or replaced")
    session: dict[str, Any] = described
    return session


def check_one_session(files: Sequence[Path]) -> str:
    """The session that these files with rows are all of, or an error if they are not of one."""
    sessions = {file: str(read_session(file)["session"]) for file in files}
    first, *others = files
    for file in others:
        if sessions[file] != sessions[first]:
            raise DataError(
                f"{first} and {file} are of different sessions, {sessions[first][:16]} and "
                f"{sessions[file][:16]}, so their rows do not match; compare anew"
            )
    return sessions[first]
