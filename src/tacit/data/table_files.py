"""The files that tables come from, and the data frames that take their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from tacit.core.errors import DataError
from tacit.core.files import expanded
from tacit.data.own_frames import TITLE, is_frame_name, recall
from tacit.data.readers import read_table


def find_table(name: str, folder: Path | None) -> Path:
    """The path as written or, where no file is there, in the data folder."""
    if is_frame_name(name):
        return Path(name)
    path = expanded(name).absolute()
    if folder is not None and not os.path.exists(path) and (folder / name).exists():
        return folder / name
    return path


def open_table(path: Path) -> pd.DataFrame:
    """The table in this file, or the data frame of this name."""
    frame = recall(path.name) if is_frame_name(path.name) else read_table(path)
    table: pd.DataFrame = frame.rename(columns=str)
    if table.columns.has_duplicates:
        name = table.columns[table.columns.duplicated()][0]
        raise DataError(f"{path} has two columns that are called {name}; rename one of them")
    return table


def title_of(path: Path) -> str:
    """The table's name in notes."""
    return TITLE if is_frame_name(path.name) else path.name


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Adds the file's name to errors about a column."""
    try:
        yield
    except DataError as error:
        head = f"{path}: {error.head}" if error.head else str(path)
        parameters = error.values or error.parameters
        raise DataError(head, parameters=parameters, details=error.details) from None
