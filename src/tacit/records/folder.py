"""A study's folder: made, locked for one writer, and removed again if the study is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from tacit.core.errors import StudyError, TacitError
from tacit.core.files import replacing
from tacit.records.history import read_lines


def new_folder(name: str, parent: str | Path = "runs") -> Path:
    """A path that does not exist yet, for the folder of a new study: runs/<name>-<time>."""
    word = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:80] or "study"
    stem = f"{word}-{datetime.now():%Y%m%d-%H%M%S}"
    path = Path(parent) / stem
    number = 2
    while path.exists():
        path = Path(parent) / f"{stem}-{number}"
        number += 1
    return path


def check_empty(folder: Path) -> None:
    """Refuses a folder that holds something already."""
    if folder.exists() and not folder.is_dir():
        text = f"{folder} is a file; name a folder for the results"
        raise StudyError(text, parameters=("folder",))
    if folder.exists() and any(folder.iterdir()):
        text = f"{folder} is not empty; resume the study in it, or name another folder"
        raise StudyError(text, parameters=("folder",))


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)


def make(folder: Path) -> list[Path]:
    """Makes the folder; returns it and those above it that are new, the innermost first."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _clear(folder, new)
        raise StudyError(f"cannot make the folder {folder}: {error.strerror}") from None
    return new


@contextmanager
def undone(folder: Path, new: list[Path]) -> Iterator[None]:
    """Removes the folder again if the study is refused before its first round."""
    try:
        yield
    except TacitError:
        if not read_lines(folder / "history.jsonl"):
            _clear(folder, new)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps two processes from writing to one folder."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StudyError(
                f"{folder} is being run by another process; wait for it or stop it"
            ) from None
        yield


def _clear(folder: Path, new: list[Path]) -> None:
    """Empties the folder, and removes the folders that are new."""
    contents = list(folder.iterdir()) if folder.is_dir() else []
    for path in contents:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in new:
        with suppress(OSError):  # it was never made, or somebody else has put something there
            path.rmdir()
