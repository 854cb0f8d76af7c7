"""Identifiers as parties compare them: cells become text, spellings that mean the same become one, each counts once."""

from __future__ import annotations

import struct
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, suggest
from tacit.data.readers import MISSING

EXACT = 2**53  # beyond it a float has lost digits
SHORTEST_TIME = " 00:00:00"


@dataclass(frozen=True)
class Spelling:
    """Which spellings of an identifier are the same; all parties have to agree on it.

    >>> Spelling().apply("  Ana  MUÑOZ ")
    'ana muñoz'
    """

    unicode: Literal["nfc", "nfkc", "keep"] = "nfc"
    case: Literal["fold", "keep"] = "fold"
    spaces: Literal["collapse", "remove", "keep"] = "collapse"  # collapse also strips both ends

    def apply(self, text: str) -> str:
        """Marks are put in order before letters are folded (Unicode 3.13, D145): the mark U+0345 folds to a letter."""
        if self.unicode == "keep" or text.isascii():
            return self._folded(text)
        apart: Literal["NFD", "NFKD"] = "NFD" if self.unicode == "nfc" else "NFKD"
        whole: Literal["NFC", "NFKC"] = "NFC" if self.unicode == "nfc" else "NFKC"
        return unicodedata.normalize(whole, self._folded(unicodedata.normalize(apart, text)))

    def _folded(self, text: str) -> str:
        if self.case == "fold":
            text = text.casefold()
        return (
            text
            if self.spaces == "keep"
            else (" " if self.spaces == "collapse" else "").join(text.split())
        )


@dataclass(frozen=True)
class Identifiers:
    """A party's distinct identifiers, the row in which each occurs first, and what was left out."""

    values: list[bytes] = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    total: int
    missing: int

    @property
    def repeated(self) -> int:
        """Rows whose identifier an earlier row has."""
        return self.total - self.missing - len(self.values)

    def __len__(self) -> int:
        return len(self.values)


def read_identifiers(
    table: Any, key: str | Sequence[str], spelling: Spelling | None = None
) -> Identifiers:
    """The identifiers in a table's column, or in several columns together, or in a list of them.

    >>> found = read_identifiers(["7A", "7a ", None, "8B"], "nin")
    >>> found.values, found.rows.tolist(), found.missing, found.repeated
    ([b'7a', b'8b'], [0, 3], 1, 1)
    """
    keys = [key] if isinstance(key, str) else list(key)
    spelling = spelling or Spelling()
    columns = [
        [_spelt(text, spelling) for text in _texts(values, name)]
        for name, values in _columns(table, keys)
    ]
    first: dict[bytes, int] = {}
    missing = 0
    for row, parts in enumerate(zip(*columns, strict=True)):
        if None in parts:
            missing += 1
        else:
            first.setdefault(_joined(parts), row)
    rows = np.fromiter(first.values(), np.int64, len(first))
    return Identifiers(list(first), rows, len(columns[0]), missing)


def _columns(table: Any, keys: list[str]) -> list[tuple[str, Iterable[Any]]]:
    if not _is_table(table):
        return [("".join(keys), _column(table if len(keys) == 1 else None))]
    if not keys:
        raise DataError(
            f"name the column that holds the identifiers: one of {', '.join(map(str, table.columns))}"
        )
    for name in keys:
        if name not in table.columns:
            raise DataError(
                f"there is no column {name!r}; {suggest(name, map(str, table.columns))}"
            )
        if _is_table(table[name]):
            raise DataError(f"two columns are called {name!r}; rename one")
    return [(name, table[name]) for name in keys]


def _is_table(value: Any) -> bool:
    """Whether it is pandas' table. Who has one has loaded pandas, which takes longer than all else that is loaded."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _column(cells: Any) -> list[Any]:
    """A list, as it is: pandas would make floats of whole numbers with a gap, and refuses lone surrogates."""
    try:
        if isinstance(cells, str | bytes | Mapping | Set):
            raise TypeError
        return list(cells)
    except (TypeError, ValueError):
        raise DataError(
            "expected a table, or a list of identifiers with one name for what they are"
        ) from None


def _texts(cells: Iterable[Any], name: str) -> list[str | None]:
    """Cells as text: 7, 7.0 and '7' are the same, a date is ISO, a gap is None."""
    return [None if _is_gap(cell) else _text(cell, name) for cell in cells]


def _is_gap(cell: Any) -> bool:
    """None, and numbers and dates that stand for none, which differ from themselves; `pandas.NA` has such a text."""
    if isinstance(cell, str | int):
        return False
    comparable = isinstance(cell, float | Decimal | datetime | np.generic)
    return cell is None or (comparable and bool(cell != cell))


def _text(cell: Any, name: str) -> str | None:
    if isinstance(cell, bool | np.bool_):
        raise DataError(f"{name} holds true and false, which identify nobody; name another column")
    if isinstance(cell, bytes | list | tuple | dict | set | np.ndarray):
        raise DataError(
            f"{name} holds {type(cell).__name__} in its cells; give identifiers as text or whole numbers"
        )
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if not abs(number) < EXACT or not number.is_integer():
            raise DataError(
                f"{name} holds numbers with decimals, or too long for a float; give identifiers as text"
            )
        cell = int(number)
    text = str(cell).removesuffix(SHORTEST_TIME) if isinstance(cell, datetime) else str(cell)
    return None if text.strip() in MISSING else text


def _spelt(text: str | None, spelling: Spelling) -> bytes | None:
    """None where nothing of it is left."""
    return None if text is None else spelling.apply(text).encode("utf-8", "surrogatepass") or None


def _joined(parts: Sequence[bytes | None]) -> bytes:
    """One identifier of several columns, so that ('ab', 'c') and ('a', 'bc') differ."""
    if len(parts) == 1:
        return parts[0] or b""
    return b"".join(struct.pack("!I", len(part or b"")) + (part or b"") for part in parts)
