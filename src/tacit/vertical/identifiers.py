"""Identifiers as parties compare them.

Cells become text, spellings that mean the same become one, and each identifier counts once.
"""

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
MIDNIGHT = " 00:00:00"


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
        """The one spelling of this text.

        Marks are put in order before letters are folded (Unicode 3.13, D145), since the mark U+0345
        folds to a letter.
        """
        if self.unicode == "keep" or text.isascii():
            return self._folded(text)
        if self.unicode == "nfc":
            decomposed = unicodedata.normalize("NFD", text)
            return unicodedata.normalize("NFC", self._folded(decomposed))
        decomposed = unicodedata.normalize("NFKD", text)
        return unicodedata.normalize("NFKC", self._folded(decomposed))

    def _folded(self, text: str) -> str:
        if self.case == "fold":
            text = text.casefold()
        if self.spaces == "keep":
            return text
        separator = " " if self.spaces == "collapse" else ""
        return separator.join(text.split())


@dataclass(frozen=True)
class Identifiers:
    """A party's distinct identifiers, with the row in which each occurs first."""

    values: list[bytes] = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    total: int  # rows of the table
    missing: int  # rows without an identifier

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

    >>> identifiers = read_identifiers(["7A", "7a ", None, "8B"], "nin")
    >>> identifiers.values, identifiers.rows.tolist()
    ([b'7a', b'8b'], [0, 3])
    >>> identifiers.missing, identifiers.repeated
    (1, 1)
    """
    keys = [key] if isinstance(key, str) else list(key)
    spelling = spelling or Spelling()
    columns = []
    for name, cells in _columns(table, keys):
        columns.append([_spelt(cell, name, spelling) for cell in cells])
    first_rows: dict[bytes, int] = {}
    missing = 0
    for row, values in enumerate(zip(*columns, strict=True)):
        if None in values:
            missing += 1
        else:
            first_rows.setdefault(_joined(values), row)
    rows = np.fromiter(first_rows.values(), np.int64, len(first_rows))
    return Identifiers(list(first_rows), rows, len(columns[0]), missing)


def _columns(table: Any, keys: list[str]) -> list[tuple[str, Iterable[Any]]]:
    """The columns with the identifiers, by name."""
    if not _is_table(table):
        return [("".join(keys), _listed(table, keys))]
    names = [str(name) for name in table.columns]
    if not keys:
        raise DataError(
            f"name the column that holds the identifiers: one of {', '.join(names)}",
            parameters=("key",),
        )
    for key in keys:
        if key not in table.columns:
            raise DataError(
                f"there is no column {key!r}; {suggest(key, names)}", parameters=("key",)
            )
        if _is_table(table[key]):
            raise DataError(f"two columns are called {key!r}; rename one")
    return [(key, table[key]) for key in keys]


def _is_table(value: Any) -> bool:
    """Whether it is pandas' table.

    Whoever has one has loaded pandas, which takes longer to load than everything else here.
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _listed(cells: Any, keys: list[str]) -> list[Any]:
    """A list of identifiers, as it is.

    pandas would make floats of whole numbers with a gap, and refuses lone surrogates.
    """
    try:
        if len(keys) != 1 or isinstance(cells, str | bytes | Mapping | Set):
            raise TypeError
        return list(cells)
    except (TypeError, ValueError):
        raise DataError(
            "expected a table, or a list of identifiers with one name for what they are"
        ) from None


def _spelt(cell: Any, name: str, spelling: Spelling) -> bytes | None:
    """A cell as it is compared; None where it is empty, or nothing of its text is left."""
    if _is_gap(cell):
        return None
    text = _text(cell, name)
    if text is None:
        return None
    return spelling.apply(text).encode("utf-8", "surrogatepass") or None


def _is_gap(cell: Any) -> bool:
    """Whether it is None, or a number or date that stands for none and so differs from itself.

    `pandas.NA` is told by its text.
    """
    if isinstance(cell, str | int):
        return False
    if cell is None:
        return True
    comparable = isinstance(cell, float | Decimal | datetime | np.generic)
    return comparable and bool(cell != cell)


def _text(cell: Any, name: str) -> str | None:
    """A cell as text: 7, 7.0 and '7' are the same, a date is ISO. None where it means nothing."""
    if isinstance(cell, bool | np.bool_):
        raise DataError(f"{name} holds true and false, which identify nobody; name another column")
    if isinstance(cell, bytes | list | tuple | dict | set | np.ndarray):
        raise DataError(
            f"{name} holds {type(cell).__name__} in its cells; "
            "give identifiers as text or whole numbers"
        )
    if isinstance(cell, float | np.floating):
        cell = _whole_number(float(cell), name)
    text = str(cell)
    if isinstance(cell, datetime):
        text = text.removesuffix(MIDNIGHT)
    return None if text.strip() in MISSING else text


def _whole_number(number: float, name: str) -> int:
    if not abs(number) < EXACT or not number.is_integer():
        raise DataError(
            f"{name} holds numbers with decimals, or too long for a float; give identifiers as text"
        )
    return int(number)


def _joined(values: Sequence[bytes | None]) -> bytes:
    """One identifier from several columns, so that ('ab', 'c') and ('a', 'bc') differ."""
    if len(values) == 1:
        return values[0] or b""
    texts = [value or b"" for value in values]
    return b"".join(struct.pack("!I", len(text)) + text for text in texts)
