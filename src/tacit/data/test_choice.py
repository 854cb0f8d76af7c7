"""Which rows of a table are tested on, where the user says so: a file of their own, whole groups,
the latest rows, or the rows of one client.

>>> TestChoice.read({"group": "patient"}).text
'whole groups of patient'
>>> values = pd.Series(["2024-01-01", "2024-03-01", "2024-02-01", "2024-04-01"])
>>> latest_rows("admitted", values, share=0.25)
array([False, False, False,  True])
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.core.arrays import Floats, Index
from tacit.core.errors import DataError, StudyError, shown
from tacit.core.fields import check_names
from tacit.data.features import Date, Number, as_days, as_numbers, as_text
from tacit.data.holdout import TEST_SEED
from tacit.data.recognition import recognise

EACH = "each"  # in place of a client's name: one after the other
EXAMPLES = "a file, {group: patient}, {time: admitted} or {client: Turku}"
Mask = NDArray[np.bool_]  # which rows are tested on


@dataclass(frozen=True)
class TestChoice:
    """What a table's setting `test` says; one of these, and `since` with a time."""

    __test__ = False  # pytest takes a class of such a name for a test

    path: str | None = None
    group: str | None = None
    time: str | None = None
    client: str | None = None
    since: str | None = None  # `from` in the setting

    @classmethod
    def read(cls, setting: Any) -> TestChoice:
        """The choice, from the setting as a study has it."""
        if setting is None:
            return cls()
        if isinstance(setting, str):
            return cls(path=setting)
        if isinstance(setting, float | int):
            raise StudyError(f"test: expected {EXAMPLES}; a share is test_share: {setting}")
        if not isinstance(setting, Mapping):
            raise StudyError(f"test: expected {EXAMPLES}, got {shown(setting)}")
        return cls._of(setting)

    @classmethod
    def _of(cls, setting: Mapping[str, Any]) -> TestChoice:
        kinds = ("path", "group", "time", "client")
        check_names(setting, (*kinds, "from"), "test")
        chosen = [kind for kind in kinds if setting.get(kind) is not None]
        if len(chosen) != 1:
            raise StudyError(f"test: expected one of {', '.join(kinds)}, got {shown(setting)}")
        values = {name: as_setting(value) for name, value in setting.items() if value is not None}
        since = values.pop("from", None)
        if since is not None and chosen != ["time"]:
            raise StudyError("test: from goes with time: {time: admitted, from: 2025-01-01}")
        return cls(**values, since=since)

    @property
    def column(self) -> str | None:
        """The column that it is about, apart from the client's."""
        return self.group or self.time

    @property
    def text(self) -> str | None:
        """The choice in short; None for a share of the rows."""
        if self.group is not None:
            return f"whole groups of {self.group}"
        if self.time is not None:
            return f"{self.time} from {self.since}" if self.since else f"latest by {self.time}"
        return self.client or self.path

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) == "":
                raise StudyError(f"test: {item.name} is empty; expected {EXAMPLES}")


def as_setting(value: Any) -> str:
    """A value of the setting as a text: YAML reads 2025-01-01 as a date and 7 as a number."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise StudyError(f"test: expected a text, got {shown(value)}")
    return str(value)


def rows_of_groups(
    column: str, values: pd.Series[Any], share: float, keep: Sequence[Index]
) -> Mask:
    """Whole groups, in random order, up to about this share of the rows.

    `keep` has codes of rows, such as their classes: each code keeps a row to train on.
    """
    texts = as_text(values)
    _refuse_gaps(column, sum(text is None for text in texts))
    groups, _ = pd.factorize(np.array(texts, dtype=object), sort=True)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise DataError(
            f"test: all rows have the same {column}, so no group can be tested on;"
            " name a column that tells the groups apart"
        )
    wanted = share * len(groups)
    left = [np.bincount(codes) for codes in keep]
    rows_by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    is_test = np.zeros(len(groups), bool)
    count = 0
    for group in _order(sizes, wanted):
        rows = rows_by_group[group]
        is_closer = abs(count + len(rows) - wanted) < abs(count - wanted) or not count
        if is_closer and _can_go(rows, keep, left):
            is_test[rows] = True
            count += len(rows)
    if not count:
        raise DataError(
            f"test: no group of {column} can be tested on, since each has the only rows of some"
            " class or client; use test_share in place of test"
        )
    return is_test


def latest_rows(
    column: str,
    values: pd.Series[Any],
    *,
    share: float,
    since: str | None = None,
    format: str | None = None,
) -> Mask:
    """The rows from a moment on: a share of all rows, the latest, or those since a given moment."""
    moments, is_date = _as_moments(column, values, format)
    _refuse_gaps(column, int(np.isnan(moments).sum()))
    if since is not None:
        return _rows_since(column, values, moments, _parse_since(column, since, is_date))
    ordered = np.sort(moments)
    first = len(ordered) - max(1, round(share * len(ordered)))
    is_test: Mask = moments >= ordered[first]
    if is_test.all():  # so many rows are of the first moment
        is_test = moments > ordered[0]
    if not is_test.any():
        raise DataError(
            f"test: all rows have the same {column}, so none is the latest; name another column"
        )
    return is_test


def rows_of_client(column: str, name: str, owner: Index, owners: tuple[str, ...]) -> Mask:
    """The rows of one client; there must be others to train on."""
    if len(owners) < 2:
        raise DataError(f"test: {column} names one client, so nobody else is left to train on")
    return np.asarray(owner) == owners.index(name)


def _order(sizes: Index, wanted: float) -> list[int]:
    """The groups in random order; those that are too large on their own come last."""
    order = np.random.default_rng(TEST_SEED).permutation(len(sizes))
    is_large = sizes[order] > 2 * wanted
    large = order[is_large]
    by_size = large[np.argsort(sizes[large], kind="stable")]
    return [*order[~is_large].tolist(), *by_size.tolist()]


def _can_go(rows: Index, keep: Sequence[Index], left: list[Index]) -> bool:
    """Whether every code keeps a row if these go; then they are taken off what is left."""
    rests: list[Index] = []
    for codes, counts in zip(keep, left, strict=True):
        present, gone = np.unique(codes[rows], return_counts=True)
        if (counts[present] <= gone).any():
            return False
        rest = counts.copy()
        rest[present] -= gone
        rests.append(rest)
    left[:] = rests
    return True


def _as_moments(column: str, values: pd.Series[Any], format: str | None) -> tuple[Floats, bool]:
    """The column as numbers in the order of time, and whether it holds dates."""
    try:
        kind = recognise(column, values, format, False)
    except DataError as error:
        raise DataError(f"test: {error}") from None
    if kind is Date:
        days, _ = as_days(column, values, format)
        return days, True
    if kind is Number:
        return as_numbers(column, values), False
    example = next((text for text in as_text(values) if text is not None), "")
    raise DataError(f"test: time needs a column of dates or numbers; {column} holds {example!r}")


def _parse_since(column: str, since: str, is_date: bool) -> float:
    """The moment that the test rows start from, as the column's own numbers."""
    try:
        if not is_date:
            return float(since)
        moment = pd.to_datetime(since, utc=True, format="ISO8601").tz_localize(None)
        return float((moment - pd.Timestamp(0)) / pd.Timedelta(days=1))
    except (ValueError, OverflowError):
        wanted = "a date such as 2025-01-01" if is_date else "a number"
        raise DataError(f"test: {column} holds {wanted}; from is {since!r}") from None


def _rows_since(column: str, values: pd.Series[Any], moments: Floats, start: float) -> Mask:
    is_test: Mask = moments >= start
    if is_test.any() and not is_test.all():
        return is_test
    texts = as_text(values)
    first, last = texts[int(moments.argmin())], texts[int(moments.argmax())]
    problem = "no row to train on" if is_test.all() else "no row to test on"
    raise DataError(f"test: from leaves {problem}; {column} goes from {first} to {last}")


def _refuse_gaps(column: str, gaps: int) -> None:
    if gaps:
        rows = "1 row has" if gaps == 1 else f"{gaps} rows have"
        raise DataError(
            f"test: {rows} no {column}, so nobody knows on which side to put them;"
            " fill it in, or leave these rows out"
        )
