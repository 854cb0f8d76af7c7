"""Files that are either whole or absent, never half-written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self


class Staged:
    """A file that is written beside its place, as often as need be, and moved there by `publish`; else it is gone.

    It begins to exist at once, so that a place where nothing can be written is known before any work is done.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folders = [folder for folder in path.parents if not folder.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        except OSError as error:
            error.filename = str(path)  # what the user knows of, not its neighbour
            raise
        os.close(handle)
        self._temporary = Path(name)

    def write(self, fill: Callable[[IO[bytes]], None]) -> None:
        """What is to be published; the last call counts."""
        try:
            with self._temporary.open("wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = str(self.path)
            raise

    def publish(self) -> None:
        _make_public(self._temporary)
        os.replace(self._temporary, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.unlink(missing_ok=True)
        with suppress(OSError):  # somebody has put something there
            for folder in self._folders:
                folder.rmdir()


def _make_public(path: str | Path) -> None:
    """Temporary files are their owner's alone; these get what the umask says."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary neighbour of `path` and moves it there when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # what the user knows of, not its neighbour
        raise
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _make_public(name)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def created(path: Path, content: bytes, *, private: bool = False) -> Iterator[None]:
    """Writes a file that must not be there yet; should the block fail, it is gone again, with folders made for it.

    A private file is its owner's alone from its first moment, whatever the umask.
    """
    folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's file lies there
            for folder in folders:
                folder.rmdir()
        raise


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Should the block fail, the file is what it was before."""
    before = path.read_bytes()
    try:
        yield
    except BaseException:
        if path.read_bytes() != before:
            with replacing(path, "wb") as file:
                file.write(before)
        raise
