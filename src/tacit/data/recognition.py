"""The kind of a column, by what it holds. A column that could mean two things is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from tacit.core.errors import DataError
from tacit.data.features import Category, Column, Date, Number, as_text

ISO = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?")
OTHER_DATE = re.compile(r"(\d{1,4})([/.-])(\d{1,2})\2(\d{1,4})([T ]\d{1,2}:\d{2}(:\d{2})?)?")
DRESSED_NUMBER = re.compile(r"[-+]?[€$£]?\s?\d[\d.,' ]*\s?(%|€|\$|£)?")
WORDY_DATE = re.compile(r"(\w{3,9},? )?(\d{1,2}\.? )?[^\W\d]{3,9}\.? (\d{1,2},? )?\d{2,4}")
MOST = 0.9  # if more of a column's texts look like numbers or dates, it is refused
FEW = 10  # a column with so many different texts, or fewer, does not hold names or ids
NEARLY_ALL = 0.8  # if more of a column's texts are different, it holds names or ids


class NamesError(DataError):
    """A column holds names or ids: nearly all of its texts are different."""


def recognise(
    name: str, values: pd.Series[Any], format: str | None, category: bool
) -> type[Column]:
    """The kind of a column: as stated, by its type, or by what its texts look like."""
    if format is not None or values.dtype.kind == "M":
        return Date
    if category or isinstance(values.dtype, pd.CategoricalDtype):
        return Category
    if values.dtype.kind in "biuf":
        return Number
    if values.dtype.kind in "mc":
        raise DataError(
            f"column {name} holds {values.dtype}; turn it into numbers, or list it under drop",
            parameters={"drop": name},
        )
    if values.dtype == object and _has_lists(values):
        raise DataError(
            f"column {name} holds lists; turn it into plain columns, or list it under drop",
            parameters={"drop": name},
        )
    texts = [text for text in as_text(values) if text is not None]
    return _recognise_text(name, texts) if texts else Category


def _has_lists(values: pd.Series[Any]) -> bool:
    return any(isinstance(value, list | dict | set | np.ndarray) for value in values)


def _recognise_text(name: str, texts: list[str]) -> type[Column]:
    if all(text in ("True", "False") for text in texts):
        return Number
    are_dates = [ISO.fullmatch(text) is not None for text in texts]
    if _all_fit(name, texts, are_dates, "dates"):
        return Date
    if all(OTHER_DATE.fullmatch(text) for text in texts):
        format = guess_format(texts)
        setting = f"dates: {{{name}: '{format}'}}"
        raise DataError(
            f"column {name} looks like dates such as {texts[0]!r};"
            f" state their format, such as {setting}",
            parameters={"dates": {name: format}},
        )
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
    are_numbers = (~np.isnan(numbers.to_numpy(np.float64))).tolist()
    if _all_fit(name, texts, are_numbers, "numbers"):
        return Number
    _refuse_dressed(name, texts)
    _refuse_identifiers(name, texts)
    return Category


def _refuse_dressed(name: str, texts: list[str]) -> None:
    """Refuses what people read as numbers and dates and a computer does not: 0,13, 1 Jan 2020."""
    numbers = [text for text in texts if DRESSED_NUMBER.fullmatch(text)]
    if _dominate(numbers, texts):
        raise DataError(
            f"column {name} looks like numbers such as {numbers[0]!r};"
            f" write them as 1234.5, or add categories: [{name}]",
            parameters={"categories": name},
        )
    dates = [text for text in texts if WORDY_DATE.fullmatch(text)]
    if _dominate(dates, texts):
        raise DataError(
            f"column {name} looks like dates such as {dates[0]!r};"
            f" write them as 2026-01-31, or add drop: [{name}]",
            parameters={"drop": name},
        )


def _dominate(alike: list[str], texts: list[str]) -> bool:
    """Whether nearly all texts are among those that look alike, and these are more than two."""
    return len(alike) > MOST * len(texts) and len(set(alike)) > 2


def _refuse_identifiers(name: str, texts: list[str]) -> None:
    different = len(set(texts))
    if different > FEW and different > NEARLY_ALL * len(texts):
        raise NamesError(
            f"column {name} has {different} different texts in {len(texts)} training rows,"
            " as names and ids do, and nothing can be learnt from it;"
            f" add drop: [{name}]",
            parameters={"drop": name},
        )


def _all_fit(name: str, texts: list[str], fits: list[bool], kind: str) -> bool:
    """Whether all texts fit; where only most do, the rest are mistakes and refused."""
    if len(texts) / 2 < sum(fits) < len(texts):
        mistake = texts[fits.index(False)]
        raise DataError(
            f"column {name} holds {kind} and also {mistake!r};"
            f" leave such cells empty, or add categories: [{name}]",
            parameters={"categories": name},
        )
    return all(fits)


def guess_format(texts: list[str]) -> str:
    """A strptime format that these dates may have.

    Where both orders of day and month are possible, the day comes first.
    """
    matches = [match for match in map(OTHER_DATE.fullmatch, texts) if match]
    first = max(int(match[1]) for match in matches)
    second = max(int(match[3]) for match in matches)
    has_long_year = any(len(match[1]) > 2 or len(match[4]) > 2 for match in matches)
    year = "%Y" if has_long_year else "%y"
    order = ["%d", "%m", year]
    if first > 31:
        order = [year, "%m", "%d"]
    elif second > 12:
        order = ["%m", "%d", year]
    _, separator, _, _, clock, seconds = matches[0].groups()
    date = separator.join(order)
    if not clock:
        return date
    time = "%H:%M:%S" if seconds else "%H:%M"
    return f"{date}{clock[0]}{time}"  # between them a space or a T
