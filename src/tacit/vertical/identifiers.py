"""Identifiers as parties compare them: cells become text, spellings that mean the same become one, each counts once."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.core.errors import DataError, suggest
from tacit.data.features import MISSING

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
        if self.spaces != "keep":
            text = (" " if self.spaces == "collapse" else "").join(text.split())
        if self.case == "fold":
            text = text.casefold()
        if self.unicode == "keep" or text.isascii():
            return text
        form: Literal["NFC", "NFKC"] = "NFC" if self.unicode == "nfc" else "NFKC"
        text = unicodedata.normalize(form, text)
        # Folding may undo the form, and the form may bring letters to fold or spaces: once more settles it.
        again = unicodedata.normalize(form, text.casefold() if self.case == "fold" else text)
        return again if self.spaces == "keep" else (" " if self.spaces == "collapse" else "").join(again.split())


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


def read_identifiers(table: Any, key: str | Sequence[str], spelling: Spelling | None = None) -> Identifiers:
    """The identifiers in a table's column, or in several columns together, or in a list of them.

    >>> found = read_identifiers(["7A", "7a ", None, "8B"], "nin")
    >>> found.values, found.rows.tolist(), found.missing, found.repeated
    ([b'7a', b'8b'], [0, 3], 1, 1)
    """
    keys = [key] if isinstance(key, str) else list(key)
    spelling = spelling or Spelling()
    columns = [[_spelt(text, spelling) for text in _texts(values, name)] for name, values in _columns(table, keys)]
    first: dict[bytes, int] = {}
    missing = 0
    for row, parts in enumerate(zip(*columns, strict=True)):
        if None in parts:
            missing += 1
        else:
            first.setdefault(_joined(parts), row)
    rows = np.fromiter(first.values(), np.int64, len(first))
    return Identifiers(list(first), rows, len(columns[0]), missing)


def _columns(table: Any, keys: list[str]) -> list[tuple[str, pd.Series[Any]]]:
    if not isinstance(table, pd.DataFrame):
        if isinstance(table, str | bytes) or len(keys) != 1:
            raise DataError("expected a table, or a list of identifiers with one name for what they are")
        return [(keys[0], pd.Series(table, dtype=None if len(table) else object))]
    if not keys:
        raise DataError(f"name the column that holds the identifiers: one of {', '.join(map(str, table.columns))}")
    for name in keys:
        if name not in table.columns:
            raise DataError(f"there is no column {name!r}; {suggest(name, map(str, table.columns))}")
        if isinstance(table[name], pd.DataFrame):
            raise DataError(f"two columns are called {name!r}; rename one")
    return [(name, table[name]) for name in keys]


def _texts(values: pd.Series[Any], name: str) -> list[str | None]:
    """Cells as text: 7, 7.0 and '7' are the same, a date is ISO, a gap is None."""
    kind = values.dtype.kind
    if kind == "b":
        raise DataError(f"{name} holds true and false, which identify nobody; name another column")
    if kind == "f":
        numbers = values.to_numpy(dtype=float, na_value=np.nan)
        known = numbers[~np.isnan(numbers)]
        if not (np.abs(known) < EXACT).all() or not (known == np.round(known)).all():
            raise DataError(f"{name} holds numbers with decimals, or too long for a float; give identifiers as text")
        return [None if np.isnan(number) else str(int(number)) for number in numbers]
    if kind == "M":
        return [None if pd.isna(cell) else str(cell).removesuffix(SHORTEST_TIME) for cell in values]
    return [None if pd.isna(cell) else _text(cell) for cell in values]


def _text(cell: Any) -> str | None:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    text = str(cell)
    return None if text.strip() in MISSING else text


def _spelt(text: str | None, spelling: Spelling) -> bytes | None:
    """None where nothing of it is left."""
    return None if text is None else spelling.apply(text).encode("utf-8", "surrogatepass") or None


def _joined(parts: Sequence[bytes | None]) -> bytes:
    """One identifier of several columns, so that ('ab', 'c') and ('a', 'bc') differ."""
    if len(parts) == 1:
        return parts[0] or b""
    return b"".join(struct.pack("!I", len(part or b"")) + (part or b"") for part in parts)
