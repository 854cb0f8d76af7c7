"""Tables as named arrays, and back: numbers, times and text, with gaps in text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.channel.frames import GarbageError
from tacit.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Arrays = dict[str, NDArray[Any]]
PLAIN, TEXT = "plain", "text"
ENDS = np.dtype("<i8")


def is_table(value: Any) -> bool:
    """Whether it is pandas' table; whoever has one has loaded pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def columns_of(table: pd.DataFrame) -> tuple[list[list[str]], Arrays]:
    """The columns' names and kinds, and their arrays; the index does not travel."""
    description = []
    arrays: Arrays = {}
    for number, name in enumerate(table.columns):
        if not isinstance(name, str):
            raise DataError(f"a table that is sent has text as its columns' names, got {name!r}")
        column = table.iloc[:, number]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufM":
            arrays[f"{number}"] = column.to_numpy()
            description.append([name, PLAIN])
        else:
            arrays.update(_text_arrays(number, name, column))
            description.append([name, TEXT])
    return description, arrays


def _text_arrays(number: int, name: str, column: pd.Series[Any]) -> Arrays:
    """Letters one after the other, where each cell ends, and which cells are empty."""
    missing = column.isna().to_numpy(dtype=bool)
    letters = []
    for cell, is_missing in zip(column, missing, strict=True):
        if not is_missing and not isinstance(cell, str):
            raise DataError(
                f"{name} holds {type(cell).__name__} in its cells; "
                "a table that is sent holds numbers, times and text"
            )
        letters.append(b"" if is_missing else _encoded(name, cell))
    ends = np.cumsum([len(raw) for raw in letters], dtype=ENDS)
    return {
        f"{number}": np.frombuffer(b"".join(letters), np.uint8),
        f"{number}/ends": ends,
        f"{number}/missing": missing,
    }


def _encoded(name: str, cell: str) -> bytes:
    try:
        return cell.encode()
    except UnicodeEncodeError:
        raise DataError(f"{name} holds text that is not Unicode (half of a letter)") from None


def table_of(name: str, description: Any, arrays: Arrays) -> pd.DataFrame:
    """The table of this name; takes its arrays out of `arrays`."""
    try:
        return _built(name, description, arrays)
    except (ValueError, OverflowError, TypeError):  # pandas refuses some dates and letters
        raise GarbageError("sent a table that cannot be built") from None


def _built(name: str, description: Any, arrays: Arrays) -> pd.DataFrame:
    import pandas as pd

    columns = []
    titles = []
    for number, entry in enumerate(description if isinstance(description, list) else [None]):
        title, kind = _title_and_kind(entry)
        titles.append(title)
        prefix = f"{name}/{number}"
        values = _take(arrays, prefix)
        if kind == PLAIN:
            columns.append(pd.Series(values))
        else:
            ends = _take(arrays, f"{prefix}/ends")
            missing = _take(arrays, f"{prefix}/missing")
            columns.append(pd.Series(_cells(values, ends, missing), dtype=object).infer_objects())
    if len({len(column) for column in columns}) > 1:
        raise GarbageError("sent a table with columns of different lengths")
    table = pd.concat(columns, axis=1) if columns else pd.DataFrame()
    table.columns = pd.Index(titles)
    return table


def _title_and_kind(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, list) or len(entry) != 2:
        raise GarbageError("sent a table whose header cannot be read")
    title, kind = entry
    if not isinstance(title, str) or kind not in (PLAIN, TEXT):
        raise GarbageError("sent a table with a column of unknown kind")
    return title, kind


def _take(arrays: Arrays, name: str) -> NDArray[Any]:
    array = arrays.pop(name, None)
    if array is None or array.ndim != 1:
        raise GarbageError("sent a table that lacks a column")
    return array


def _cells(letters: NDArray[Any], ends: NDArray[Any], missing: NDArray[Any]) -> list[str | None]:
    """The texts of a column, which are checked: they come from another party."""
    kinds = [array.dtype.str for array in (letters, ends, missing)]
    if kinds != ["|u1", "<i8", "|b1"] or len(ends) != len(missing):
        raise GarbageError("sent a table with text that cannot be read")
    starts = np.concatenate([np.zeros(1, ENDS), ends])
    # Compared, not subtracted: a difference of such numbers may overflow.
    if np.any(ends < starts[:-1]) or starts[-1] != len(letters):
        raise GarbageError("sent a table with text that cannot be read")
    raw = letters.tobytes()
    cells: list[str | None] = []
    for start, end, is_missing in zip(starts[:-1], ends, missing, strict=True):
        try:
            text = raw[start:end].decode()
        except UnicodeDecodeError:
            raise GarbageError("sent a table with text that is not UTF-8") from None
        cells.append(None if is_missing else text)
    return cells
