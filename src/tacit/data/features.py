"""The kinds of column that a table may have, and what each becomes: numbers, categories and dates.

A column is fitted on the training rows and applied to any rows: what it learnt from the training
rows (a median, the levels) is all it uses.

>>> import pandas as pd
>>> region = Category.fit("region", pd.Series(["north", "south", "north"]))
>>> region.names, region.apply(pd.Series(["south", "west"])).tolist()
(('region = north', 'region = south'), [[0.0, 1.0], [0.0, 0.0]])
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.core.arrays import Floats
from tacit.core.errors import DataError
from tacit.data.readers import MISSING

MAX_LEVELS = 50  # of a category; the rarer ones are "other"
SHOWN_LEVELS = 10  # in a description
DAYS_A_YEAR = 365.25


@dataclass(frozen=True)
class Number:
    """One number: gaps get the median, then it is centred and divided by its deviation.

    If the training rows have gaps, a feature of its own marks them.
    """

    name: str
    fill: float
    centre: float
    spread: float
    gaps: int = 0
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any]) -> Number:
        numbers = as_numbers(name, values)
        return cls(name, **_moments(name, numbers))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *_gap_names(self))

    @property
    def becomes(self) -> str:
        return f"a number, minus {self.centre:.4g} and divided by {self.spread:.4g}"

    @property
    def missing(self) -> str:
        return _describe_filled(self.gaps, f"{self.fill:.4g}")

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        numbers = as_numbers(self.name, values)
        return np.stack([_scaled(self, numbers), *_gap_marks(self, numbers)], 1)


@dataclass(frozen=True)
class Date:
    """Days since 1970, filled and scaled as a number, and the time of year on a circle.

    A gap has no time of year.
    """

    name: str
    fill: float
    centre: float
    spread: float
    gaps: int = 0
    format: str | None = None  # as strptime has it; None is ISO 8601
    kind: ClassVar[str] = "date"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any], format: str | None = None) -> Date:
        days, _ = as_days(name, values, format)
        return cls(name, **_moments(name, days), format=format)

    @property
    def names(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.name}, sine of the year",
            f"{self.name}, cosine of the year",
            *_gap_names(self),
        )

    @property
    def becomes(self) -> str:
        return "days since 1970, and the time of year as sine and cosine"

    @property
    def missing(self) -> str:
        fill = pd.Timestamp(0) + pd.Timedelta(days=self.fill)
        return _describe_filled(self.gaps, f"{fill:%Y-%m-%d}")

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        days, angle = as_days(self.name, values, self.format)
        sine = np.nan_to_num(np.sin(angle))
        cosine = np.nan_to_num(np.cos(angle))
        return np.stack([_scaled(self, days), sine, cosine, *_gap_marks(self, days)], 1)


@dataclass(frozen=True)
class Category:
    """A feature per level, the most frequent first; the rarest levels share the feature `other`.

    Gaps are a level of their own if the training rows have any. A text that is none of the levels
    counts as `other`. Where the training rows have no rare levels, there is no feature `other`, and
    such a text is zero in all features, since nothing could be learnt for it.
    """

    name: str
    levels: tuple[str, ...]
    gaps: int = 0
    rare: int = 0  # levels of the training rows that became "other"
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any]) -> Category:
        texts = as_text(values)
        gaps = texts.count(None)
        counts = Counter(text for text in texts if text is not None)
        ordered = sorted(counts, key=lambda level: (-counts[level], level))
        _refuse_empty(name, len(ordered))
        rare = max(0, len(ordered) - MAX_LEVELS)
        return cls(name, tuple(ordered[:MAX_LEVELS]), gaps, rare)

    @property
    def names(self) -> tuple[str, ...]:
        names = [f"{self.name} = {level}" for level in self.levels]
        if self.rare:
            names.append(f"{self.name} = other")
        return (*names, *_gap_names(self))

    @property
    def becomes(self) -> str:
        shown = ", ".join(self.levels[:SHOWN_LEVELS])
        more = len(self.levels) - SHOWN_LEVELS
        if more > 0:
            shown += f" and {more} more"
        if len(self.levels) < 2:
            return f"always {shown}"
        text = f"one of {len(self.levels)} levels: {shown}"
        if self.rare:
            text += f"; {self.rare} rarer ones are other"
        return text

    @property
    def missing(self) -> str:
        if not self.gaps:
            return "none"
        return f"{_count_gaps(self.gaps)}, taken as one more level"

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        features = len(self.names)
        nowhere = features  # a position that is cut off at the end
        other_position = len(self.levels) if self.rare else nowhere
        positions: dict[str | None, int] = {
            level: position for position, level in enumerate(self.levels)
        }
        positions[None] = features - 1 if self.gaps else other_position
        rows = [positions.get(text, other_position) for text in as_text(values)]
        one_hot: Floats = np.eye(features + 1)[rows]
        return one_hot[:, :features]


Column = Number | Category | Date
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Category, Date)}


def as_text(values: pd.Series[Any]) -> list[str | None]:
    """Each value as a text without spaces around it, or None where it is missing.

    2 and 2.0 are the same text.
    """
    try:
        codes, distinct = pd.factorize(values)
    except TypeError:
        raise DataError(
            f"column {values.name} holds lists; turn it into plain columns, or list it under drop"
        ) from None
    texts: list[str | None] = []
    for value in distinct:
        text = _text(value)
        texts.append(None if text in MISSING else text)
    return [texts[code] if code >= 0 else None for code in codes]


def hash_column(values: pd.Series[Any]) -> NDArray[np.uint64]:
    """A number per row, equal where the values are equal."""
    try:
        hashes = pd.util.hash_pandas_object(values, index=False)
    except TypeError:  # lists
        hashes = pd.util.hash_pandas_object(values.astype(str), index=False)
    return np.asarray(hashes, dtype=np.uint64)


def as_numbers(name: str, values: pd.Series[Any]) -> Floats:
    """The column as floats, NaN where they are missing; text that is no number is refused."""
    if values.dtype.kind in "biuf":
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    else:
        numbers = _parse_numbers(name, as_text(values))
    if np.isinf(numbers).any():
        text = f"infinite values in {name}; fix them, or list it under drop"
        raise DataError(text, parameters={"drop": name})
    return numbers


def _parse_numbers(name: str, texts: list[str | None]) -> Floats:
    booleans = {"True": "1", "False": "0"}
    digits = [booleans.get(text or "", text) for text in texts]
    parsed = pd.to_numeric(pd.Series(digits, dtype=object), errors="coerce")
    numbers: Floats = parsed.to_numpy(np.float64, na_value=np.nan)
    _refuse_unreadable(name, texts, numbers, "a number")
    return numbers


def as_days(name: str, values: pd.Series[Any], format: str | None) -> tuple[Floats, Floats]:
    """Days since 1970 and the angle of the day in its year, NaN where dates are missing."""
    texts: list[str | None] = []  # empty for dates that pandas has read already
    try:
        if values.dtype.kind == "M":
            dates = pd.to_datetime(values, utc=True)
        else:
            texts = as_text(values)
            dates = _parse_dates(texts, format or "ISO8601")
        moments = dates.dt.tz_localize(None)
        since = (moments - pd.Timestamp(0)) / pd.Timedelta(days=1)
        days: Floats = since.to_numpy(np.float64)  # type: ignore[assignment]
    except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta, OverflowError):
        raise DataError(
            f"column {name} holds dates too far away, such as the year 9999; leave such cells empty"
        ) from None
    except ValueError as error:
        raise DataError(f"column {name}: {format!r} is no format of dates: {error}") from None
    wanted = f"a date of the form {format}" if format else "a date such as 2026-01-31"
    _refuse_unreadable(name, texts, days, wanted)
    day_of_year: Any = moments.dt.day_of_year.to_numpy(np.float64, na_value=np.nan)
    return days, 2 * math.pi * day_of_year / DAYS_A_YEAR


def _parse_dates(texts: list[str | None], format: str) -> pd.Series[Any]:
    return pd.to_datetime(pd.Series(texts, dtype=object), utc=True, format=format, errors="coerce")


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _refuse_unreadable(name: str, texts: list[str | None], numbers: Floats, wanted: str) -> None:
    """Refuses a column with a text that did not become a number."""
    for text, number in zip(texts, numbers, strict=False):  # there may be no texts
        if text is not None and math.isnan(number):
            raise DataError(
                f"column {name}: expected {wanted}, got {text!r};"
                " fix it, or list the column under drop",
                parameters={"drop": name},
            )


def _refuse_empty(name: str, values: int) -> None:
    if not values:
        text = f"column {name} has no value in the training rows; list it under drop"
        raise DataError(text, parameters={"drop": name})


def _moments(name: str, numbers: Floats) -> dict[str, Any]:
    """What a number or a date learns from the training rows.

    Centre and spread are computed after the gaps are filled.
    """
    gaps = np.isnan(numbers)
    _refuse_empty(name, int((~gaps).sum()))
    fill = float(np.median(numbers[~gaps]))
    filled = np.where(gaps, fill, numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        centre = float(filled.mean())
        spread = float(filled.std())
    if not (math.isfinite(centre) and math.isfinite(spread)):
        raise DataError(
            f"column {name} holds numbers that are too large; fix them, or list it under drop",
            parameters={"drop": name},
        )
    rounding = 1e-12 * max(abs(centre), 1e-300)
    if spread <= rounding:  # all numbers are equal
        spread = 1.0
    return {"fill": fill, "centre": centre, "spread": spread, "gaps": int(gaps.sum())}


def _scaled(column: Number | Date, numbers: Floats) -> Floats:
    filled: Floats = np.where(np.isnan(numbers), column.fill, numbers)
    return (filled - column.centre) / column.spread


def _gap_names(column: Column) -> tuple[str, ...]:
    """The name of the feature that marks gaps, if the column has one."""
    return (f"{column.name} is missing",) if column.gaps else ()


def _gap_marks(column: Number | Date, numbers: Floats) -> list[Floats]:
    """The feature that marks gaps, if the column has one."""
    return [np.isnan(numbers).astype(np.float64)] if column.gaps else []


def _count_gaps(count: int) -> str:
    return "1 gap" if count == 1 else f"{count} gaps"


def _describe_filled(gaps: int, value: str) -> str:
    if not gaps:
        return "none"
    return f"{_count_gaps(gaps)} filled with {value}, and marked in a separate feature"
