"""Files that are written whole or not at all, and files from anybody, read up to a limit."""

from __future__ import annotations

import errno
import glob
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from tacit.core.errors import DataError, shown

SMALL = 1 << 20  # bytes of a file that people write by hand, at most
STAGED = ".staged"  # at the end of the names of files that are not published yet
UNKNOWN = 1 << 16  # bytes that are tried where a file may not tell its size, as in /proc


def read_at_most(path: str | Path, most: int = SMALL) -> bytes:
    """The content of a file that should not be larger than so many bytes.

    An OSError says what is wrong with anything else: a folder, a device, a pipe that would keep us
    waiting, or a file that would fill the memory. Its `strerror` is a line for people.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", str(path))
            size = max(status.st_size, UNKNOWN)
            content: bytes = file.read(min(size, most) + 1)
    except ValueError:  # a zero byte or half a letter
        raise OSError(errno.EINVAL, "no file can have such a name", str(path)) from None
    if max(status.st_size, len(content)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content


def expanded(path: str | Path) -> Path:
    """The path with the home folder in the place of `~`."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{shown(str(path))}: nobody here has that home folder") from None


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file without waiting for whoever writes to it, if it turns out to be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Staged:
    """A file that is written beside its path, as often as need be, and moved there by `publish`.

    Without `publish` nothing of it remains. The temporary file is created at once, so that a folder
    that cannot be written to is noticed before any work is done. What a process that was killed has
    left is removed by the next one for the same path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folders = _missing_folders(path)
        _remove_abandoned(path)
        self._handle, name = _open_neighbour(path, STAGED)
        _lock_at_once(self._handle)
        self._temporary = Path(name)

    def write(self, fill: Callable[[IO[bytes]], None]) -> None:
        """Writes what is to be published; the last call counts."""
        with naming(self.path), self._temporary.open("wb") as file:
            fill(file)
            _sync(file)

    def publish(self) -> None:
        _make_like(self._temporary, self.path)
        os.replace(self._temporary, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.unlink(missing_ok=True)
        os.close(self._handle)
        _remove_empty(self._folders)


@contextmanager
def replacing(path: Path, mode: str = "w", *, private: bool = False) -> Iterator[IO[Any]]:
    """Opens a temporary neighbour of `path`, and moves it to `path` if the block succeeds.

    A private file is readable by its owner alone.
    """
    handle, name = _open_neighbour(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        with naming(path), os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
            _sync(file)
        if not private:  # as its temporary neighbour is
            _make_like(name, path)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has an error of the system that names no file, such as a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def created(path: Path, content: bytes, *, private: bool = False) -> Iterator[None]:
    """Writes a file that must not exist yet.

    If the block fails, the file is removed, with the folders that were made for it. A private file
    is readable by its owner alone from its first moment, whatever the umask.
    """
    folders = _missing_folders(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    permissions = 0o600 if private else 0o666
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            _sync(file)
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        _remove_empty(folders)
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Waits for other processes that are in this folder in the same way, and keeps them out."""
    handle = os.open(folder, os.O_RDONLY) if folder.is_dir() and sys.platform != "win32" else None
    if handle is None:
        yield
        return
    try:
        with locked(handle):
            yield
    finally:
        os.close(handle)


@contextmanager
def locked(handle: int) -> Iterator[None]:
    """Waits for the lock of an open file or folder, and keeps it meanwhile."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """If the block fails, the file gets back the content that it had before."""
    before = path.read_bytes()
    try:
        yield
    except BaseException:
        if path.read_bytes() != before:
            with replacing(path, "wb") as file:
                file.write(before)
        raise


def _missing_folders(path: Path) -> list[Path]:
    """The folders above `path` that do not exist, the innermost first."""
    return [folder for folder in path.parents if not folder.exists()]


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # somebody has put a file there
        for folder in folders:
            folder.rmdir()


def _open_neighbour(path: Path, ending: str = "") -> tuple[int, str]:
    """A new temporary file in the folder of `path`, which is made for it: its handle and name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(ending, dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # the user does not know its neighbour
        raise


def _remove_abandoned(path: Path) -> None:
    """Removes staged neighbours of `path` whose process has ended; the others hold a lock."""
    for abandoned in path.parent.glob(f".{glob.escape(path.name)}.*{STAGED}"):
        with suppress(OSError), open(abandoned, "rb", opener=_open_at_once) as file:
            if _lock_at_once(file.fileno()):
                abandoned.unlink()


def _lock_at_once(handle: int) -> bool:
    """Whether the lock of an open file is ours, which ends with the process at the latest."""
    try:
        import fcntl
    except ImportError:  # Windows: what is abandoned stays
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _make_like(temporary: str | Path, path: Path) -> None:
    """Gives a file, which only its owner may read, the permissions of the one that it replaces.

    A new one gets those of the umask. Where the old one's group cannot be kept, no group has any.
    """
    try:
        old = path.stat()
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        return
    permissions = stat.S_IMODE(old.st_mode) & 0o777
    if old.st_gid != os.stat(temporary).st_gid:
        try:
            os.chown(temporary, -1, old.st_gid)
        except OSError:
            permissions &= ~0o070
    os.chmod(temporary, permissions)
