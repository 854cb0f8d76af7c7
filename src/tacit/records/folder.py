"""A study's folder: made, locked for one writer, and removed again if the study is refused.

A folder with a `study.yaml` can be resumed; that file is the last one that is written before the
first round.
"""

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

PARENT = Path("runs")  # of folders that nobody has named
STUDY = "study.yaml"
LOCK = ".lock"


def check_empty(folder: Path) -> None:
    """Refuses a folder that holds something already."""
    if folder.exists() and not folder.is_dir():
        text = f"{folder} is a file; name a folder for the results"
        raise StudyError(text, parameters=("folder",))
    if folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
        text = f"{folder} is not empty; resume the study in it, or name another folder"
        raise StudyError(text, parameters=("folder",))


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)


@contextmanager
def new_folder(folder: Path | None, name: str) -> Iterator[Path]:
    """A folder for a new study of this name, which is kept from other processes.

    Without a `folder` it is runs/<name>-<time>, and other studies that start in the same second get
    others. If the study is refused before its first round, nothing of the folder remains.
    """
    target, new = _claim(name) if folder is None else (folder, _make(folder))
    with _unmade(new), locked(target):
        check_empty(target)  # another process may have used it since it was checked
        with _undone(target, new):
            yield target


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Adds to an exception that stops the study how to continue it."""
    try:
        yield
    except BaseException as error:
        stopped = not isinstance(error, TacitError)  # by the user, a listener or a full disk
        if stopped and (folder / STUDY).exists():
            error.add_note(f"continue with: tacit.resume({str(folder)!r})")
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps two processes from writing to one folder."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StudyError(
                f"{folder} is being run by another process; wait for it or stop it"
            ) from None
        yield


def _claim(name: str) -> tuple[Path, list[Path]]:
    """Makes a folder that nobody else has, and returns it with all folders that are new.

    That a folder can be made only once keeps studies apart that start at the same time.
    """
    word = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:80] or "study"
    stem = f"{word}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = PARENT / stem
    number = 1
    while True:
        new = _missing(folder)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = PARENT / f"{stem}-{number}"
        except OSError as error:
            raise _not_made(folder, new, error) from None
        else:
            return folder, new


def _make(folder: Path) -> list[Path]:
    """Makes the folder; returns it and those above it that are new, the innermost first."""
    new = _missing(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_made(folder, new, error) from None
    return new


def _missing(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _not_made(folder: Path, new: list[Path], error: OSError) -> StudyError:
    _remove_empty(new)
    return StudyError(f"cannot make the folder {folder}: {error.strerror}")


@contextmanager
def _unmade(new: list[Path]) -> Iterator[None]:
    """Removes new folders again if the block fails and they are empty."""
    try:
        yield
    except BaseException:
        _remove_empty(new)
        raise


@contextmanager
def _undone(folder: Path, new: list[Path]) -> Iterator[None]:
    """Removes the folder again if the study is refused before its first round."""
    try:
        yield
    except BaseException as error:
        refused = isinstance(error, TacitError) and not read_lines(folder / "history.jsonl")
        if refused or not (folder / STUDY).exists():
            _clear(folder, new)
        raise


def _clear(folder: Path, new: list[Path]) -> None:
    """Empties the folder, and removes the folders that are new."""
    contents = list(folder.iterdir()) if folder.is_dir() else []
    for path in contents:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    _remove_empty(new)


def _remove_empty(folders: list[Path]) -> None:
    for path in folders:
        with suppress(OSError):  # it was never made, or somebody else has put something there
            path.rmdir()
