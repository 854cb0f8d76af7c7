"""The kinds of column that a table may have, and what each becomes: numbers, categories and dates.

A column is fitted on the training rows and applied to any: what it learnt there (a median, the levels) is all it knows.

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

from tacit.core.errors import DataError
from tacit.data.readers import MISSING

MAX_LEVELS = 50  # of a category; the rarer ones are "other"
SHOWN_LEVELS = 10  # in a description
DAYS_A_YEAR = 365.25
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Number:
    """One number: gaps get the median, then it is centred and divided by its deviation; gaps are marked beside it."""

    name: str
    fill: float
    centre: float
    spread: float
    gaps: int = 0
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any]) -> Number:
        return cls(name, **_moments(name, as_numbers(name, values)))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *_mark(self))

    @property
    def becomes(self) -> str:
        return f"a number, less {self.centre:.4g} and divided by {self.spread:.4g}"

    @property
    def missing(self) -> str:
        return _filled(self.gaps, f"{self.fill:.4g}")

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        numbers = as_numbers(self.name, values)
        return np.stack([_scaled(self, numbers), *_marks(self, numbers)], 1)


@dataclass(frozen=True)
class Date:
    """Days since 1970, filled and scaled as a number, and the time of year on a circle; a gap has no time of year."""

    name: str
    fill: float
    centre: float
    spread: float
    gaps: int = 0
    format: str | None = None  # as strptime has it; None is ISO 8601
    kind: ClassVar[str] = "date"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any], format: str | None = None) -> Date:
        return cls(name, **_moments(name, as_days(name, values, format)[0]), format=format)

    @property
    def names(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.name}, sine of the year",
            f"{self.name}, cosine of the year",
            *_mark(self),
        )

    @property
    def becomes(self) -> str:
        return "days since 1970, and the time of year as sine and cosine"

    @property
    def missing(self) -> str:
        return _filled(self.gaps, f"{pd.Timestamp(0) + pd.Timedelta(days=self.fill):%Y-%m-%d}")

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        days, angle = as_days(self.name, values, self.format)
        seasons = [np.nan_to_num(turn(angle)) for turn in (np.sin, np.cos)]
        return np.stack([_scaled(self, days), *seasons, *_marks(self, days)], 1)


@dataclass(frozen=True)
class Category:
    """A feature per level, the most frequent first; gaps are a level of their own where the training rows have any.

    What is none of the levels is `other`: a feature of its own where the training rows have rarer levels than those
    kept, and zero in all features where they have none, since nothing could be learnt for it.
    """

    name: str
    levels: tuple[str, ...]
    gaps: int = 0
    rare: int = 0  # levels of the training rows that became "other"
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any]) -> Category:
        texts = as_text(values)
        counts = Counter(text for text in texts if text is not None)
        ordered = sorted(counts, key=lambda level: (-counts[level], level))
        _refuse_empty(name, len(ordered))
        rare = max(0, len(ordered) - MAX_LEVELS)
        return cls(name, tuple(ordered[:MAX_LEVELS]), sum(text is None for text in texts), rare)

    @property
    def names(self) -> tuple[str, ...]:
        other = (f"{self.name} = other",) if self.rare else ()
        return (*(f"{self.name} = {level}" for level in self.levels), *other, *_mark(self))

    @property
    def becomes(self) -> str:
        shown = ", ".join(self.levels[:SHOWN_LEVELS])
        more = len(self.levels) - SHOWN_LEVELS
        shown += f" and {more} more" if more > 0 else ""
        other = f"; {self.rare} rarer ones are other" if self.rare else ""
        return (
            f"one of {len(self.levels)} levels: {shown}{other}"
            if len(self.levels) > 1
            else f"always {shown}"
        )

    @property
    def missing(self) -> str:
        return f"{_gaps(self.gaps)}, taken as one more level" if self.gaps else "none"

    def apply(self, values: pd.Series[Any]) -> Floats:
        """The rows' features. # (n,) -> (n, features)"""
        places: dict[str | None, int] = {level: place for place, level in enumerate(self.levels)}
        nowhere = len(self.names)
        other = len(self.levels) if self.rare else nowhere
        places[None] = len(self.names) - 1 if self.gaps else other
        features: Floats = np.eye(nowhere + 1)[
            [places.get(text, other) for text in as_text(values)]
        ]
        return features[:, :nowhere]


Column = Number | Category | Date
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Category, Date)}


def as_text(values: pd.Series[Any]) -> list[str | None]:
    """Each value as a text without spaces around it, None where it is missing; 2 and 2.0 are the same text."""
    codes, kinds = pd.factorize(values)
    texts = [None if (text := _text(kind)) in MISSING else text for kind in kinds]
    return [texts[code] if code >= 0 else None for code in codes]


def as_numbers(name: str, values: pd.Series[Any]) -> Floats:
    """The column as floats, NaN where they are missing; text that is no number is refused."""
    if values.dtype.kind in "biuf":
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    else:
        texts = as_text(values)
        words = pd.Series(
            [{"True": "1", "False": "0"}.get(text or "", text) for text in texts], dtype=object
        )
        numbers = pd.to_numeric(words, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        _refuse_odd(name, texts, numbers, "a number")
    if np.isinf(numbers).any():
        raise DataError(f"infinite values in {name}; mend them, or list it under drop")
    return numbers


def as_days(name: str, values: pd.Series[Any], format: str | None) -> tuple[Floats, Floats]:
    """Days since 1970 and the angle of the day in its year, NaN where dates are missing."""
    dated = values.dtype.kind == "M"
    texts = [] if dated else as_text(values)
    stated: Any = (
        {"utc": True} if dated else {"utc": True, "format": format or "ISO8601", "errors": "coerce"}
    )
    try:
        read = pd.to_datetime(values if dated else pd.Series(texts, dtype=object), **stated)
        moments = read.dt.tz_localize(None)
        days: Floats = ((moments - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(np.float64)  # type: ignore[assignment]
    except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta, OverflowError):
        raise DataError(
            f"column {name} holds dates too far away, such as the year 9999; leave such cells empty"
        ) from None
    _refuse_odd(
        name, texts, days, f"a date of the form {format}" if format else "a date such as 2026-01-31"
    )
    place: Any = moments.dt.day_of_year.to_numpy(np.float64, na_value=np.nan)
    return days, 2 * math.pi * place / DAYS_A_YEAR


def _text(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def _refuse_odd(name: str, texts: list[str | None], found: Floats, wanted: str) -> None:
    """A value that is there, but could not be read."""
    for text, value in zip(texts, found, strict=False):  # dates that come as such have no texts
        if text is not None and math.isnan(value):
            raise DataError(
                f"column {name}: expected {wanted}, got {text!r}; mend it, or list the column under drop"
            )


def _refuse_empty(name: str, values: int) -> None:
    if not values:
        raise DataError(f"column {name} has no value in the training rows; list it under drop")


def _moments(name: str, numbers: Floats) -> dict[str, Any]:
    """What a number or a date learns from the training rows; centre and spread are those after gaps are filled."""
    gaps = np.isnan(numbers)
    _refuse_empty(name, int((~gaps).sum()))
    fill = float(np.median(numbers[~gaps]))
    filled = np.where(gaps, fill, numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = float(filled.mean()), float(filled.std())
    if not (math.isfinite(centre) and math.isfinite(spread)):
        raise DataError(
            f"column {name} holds numbers that are too large; mend them, or list it under drop"
        )
    constant = spread <= 1e-12 * max(
        abs(centre), 1e-300
    )  # what rounding leaves of a spread of zero
    return {
        "fill": fill,
        "centre": centre,
        "spread": 1.0 if constant else spread,
        "gaps": int(gaps.sum()),
    }


def _scaled(column: Number | Date, numbers: Floats) -> Floats:
    filled: Floats = np.where(np.isnan(numbers), column.fill, numbers)
    return (filled - column.centre) / column.spread


def _mark(column: Column) -> tuple[str, ...]:
    return (f"{column.name} is missing",) if column.gaps else ()


def _marks(column: Number | Date, numbers: Floats) -> list[Floats]:
    return [np.isnan(numbers).astype(np.float64)] if column.gaps else []


def _gaps(count: int) -> str:
    return f"{count} gap{'s' if count != 1 else ''}"


def _filled(gaps: int, value: str) -> str:
    return (
        f"{_gaps(gaps)} filled with {value}, and marked in a feature of its own" if gaps else "none"
    )
