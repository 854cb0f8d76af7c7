"""The files of `tacit psi`: a party's rows, and what session they are of."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from tacit.core.errors import StudyError
from tacit.core.files import Staged, expanded, replacing
from tacit.vertical.session_file import describe_session, digest, session_path

if TYPE_CHECKING:
    from tacit.vertical.intersection import Intersection


class RowFiles:
    """A party's rows and the file that names their session.

    Both appear once all parties have theirs, or neither does.
    """

    def __init__(self, rows: Path, table: Any) -> None:
        self.path = rows
        self.table = table
        with ExitStack() as stack:
            self._rows = stack.enter_context(Staged(rows))
            self._session = stack.enter_context(Staged(session_path(rows)))
            self._stack = stack.pop_all()
        self._digest = ""  # of the rows that were written

    def conclude(self, result: Intersection) -> None:
        """Writes the rows, if the party has learnt any; may be called anew."""
        self._digest = ""
        if result.rows is not None:
            rows = result.of(self.table)
            self._rows.write(lambda stream: self._write_rows(rows, stream))
            text = describe_session(result, self.path, self._digest)
            self._session.write(lambda stream: _write_text(text, stream))

    def publish(self) -> None:
        """Puts both files in place."""
        if self._digest:
            self._rows.publish()
            self._session.publish()
            shutil.copymode(self.path, session_path(self.path))

    def _write_rows(self, rows: Any, stream: IO[bytes]) -> None:
        _write_table(rows, stream, self.path.suffix)
        stream.flush()
        self._digest = digest(stream.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def write_rows(rows: Any, target: Path) -> None:
    """Writes rows as CSV or parquet, whole or not at all."""
    with replacing(target, "wb") as stream:
        _write_table(rows, stream, target.suffix)


def check_rows_file(out: Path, data: Path) -> None:
    """Refuses a file for the rows that cannot be written, or that is the table itself."""
    if out.suffix not in (".csv", ".parquet"):
        raise StudyError(f"{out}: expected a name that ends in .csv or .parquet")
    for path in (out, session_path(out)):
        if path.is_dir():
            raise StudyError(f"{path} is a folder; name a file")
    if out.resolve() == expanded(data).resolve():
        raise StudyError(f"{out} is the table itself; name another file with --out")


def check_replaceable(out: Path) -> None:
    """Refuses to replace a file that an earlier session has not written."""
    if out.exists() and not session_path(out).exists():
        raise StudyError(f"{out} is there already, and of no session; name another file with --out")


def _write_table(rows: Any, stream: IO[bytes], suffix: str) -> None:
    if suffix == ".parquet":
        rows.to_parquet(stream, index=False)
    else:
        rows.to_csv(stream, index=False)


def _write_text(text: str, stream: IO[bytes]) -> None:
    stream.write(text.encode())
