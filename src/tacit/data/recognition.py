"""Which kind a column is of: what it holds decides, and what could mean two things is refused."""

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
MOST = 0.9  # of a column's texts, to be taken for what they look like
FEW = 10  # different texts that no one takes for names or numbers of people
NEARLY_ALL = 0.8  # as many different texts as rows, to be taken for those


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
            f"column {name} holds {values.dtype}; turn it into numbers, or list it under drop"
        )
    if values.dtype == object and any(
        isinstance(value, list | dict | set | np.ndarray) for value in values
    ):
        raise DataError(
            f"column {name} holds lists; turn it into plain columns, or list it under drop"
        )
    texts = [text for text in as_text(values) if text is not None]
    return _recognise_text(name, texts) if texts else Category


def _recognise_text(name: str, texts: list[str]) -> type[Column]:
    if all(text in ("True", "False") for text in texts):
        return Number
    if _mostly(name, texts, [ISO.fullmatch(text) is not None for text in texts], "dates"):
        return Date
    if all(OTHER_DATE.fullmatch(text) for text in texts):
        stated = f"dates: {{{name}: '{guess_format(texts)}'}}"
        raise DataError(
            f"column {name} looks like dates such as {texts[0]!r}; state their format, such as {stated}"
        )
    read = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
    if _mostly(name, texts, (~np.isnan(read)).tolist(), "numbers"):
        return Number
    different = len(set(texts))
    _refuse_dressed(name, texts)
    if different > FEW and different > NEARLY_ALL * len(texts):
        raise DataError(
            f"column {name} has {different} different texts in {len(texts)} training rows, as names and ids do,"
            f" and nothing can be learnt from it; add drop: [{name}]"
        )
    return Category


def _refuse_dressed(name: str, texts: list[str]) -> None:
    """Numbers and dates that people read as such and a computer does not: 0,13 or 5 % or 1 Jan 2020."""
    for what, shape in (("numbers", DRESSED_NUMBER), ("dates", WORDY_DATE)):
        like = [text for text in texts if shape.fullmatch(text)]
        if len(like) > MOST * len(texts) and len(set(like)) > 2:
            plain = "1234.5" if what == "numbers" else "2026-01-31"
            raise DataError(
                f"column {name} looks like {what} such as {like[0]!r}; write them as {plain}, or add"
                f" {'categories' if what == 'numbers' else 'drop'}: [{name}]"
            )


def _mostly(name: str, texts: list[str], fits: list[bool], what: str) -> bool:
    """Whether all texts fit; where most do, the others are mistakes."""
    if len(texts) / 2 < sum(fits) < len(texts):
        odd = next(text for text, fit in zip(texts, fits, strict=True) if not fit)
        raise DataError(
            f"column {name} holds {what} and also {odd!r}; leave such cells empty, or add categories: [{name}]"
        )
    return all(fits)


def guess_format(texts: list[str]) -> str:
    """A strptime format that these dates may have; where day and month could be either, the day comes first."""
    found = [match for match in map(OTHER_DATE.fullmatch, texts) if match]
    first, second = (max(int(match[place]) for match in found) for place in (1, 3))
    mark, clock = found[0][2], found[0][5]
    year = "%Y" if max(len(match[place]) for match in found for place in (1, 4)) > 2 else "%y"
    order = (
        [year, "%m", "%d"]
        if first > 31
        else ["%m", "%d", year]
        if second > 12
        else ["%d", "%m", year]
    )
    time = "" if not clock else clock[0] + ("%H:%M:%S" if found[0][6] else "%H:%M")
    return mark.join(order) + time
