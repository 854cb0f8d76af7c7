"""Groups of rows by a column, such as sex or age, to tell results by: are all served as well?

The column need not be one that the model learns from.

>>> ages = pd.Series([30, 41, 42, 47, 52, 58, 63, 66, 70, 81, 85, None])
>>> group_rows("age", ages, train=np.arange(12), test=np.arange(0)).names
('up to 42', '42 to 58', '58 to 66', 'over 66', 'missing')
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tacit.core.arrays import Floats, Index
from tacit.core.errors import DataError
from tacit.data.features import Category, Date, as_days, as_numbers, as_text
from tacit.data.recognition import NamesError, recognise

FEW_NUMBERS = 8  # a column with so many different numbers, or fewer, has a group for each
MOST_LEVELS = 12  # of a column; the rarer ones are "other"
QUARTERS = (0.25, 0.5, 0.75)
OTHER = "other"
MISSING = "missing"
GAP = -1  # the code of a row without a value
Codes = tuple[list[str], Index]  # the groups' names, and each row's position among them


@dataclass(frozen=True)
class Grouping:
    """Which group of a column every row belongs to."""

    column: str
    names: tuple[str, ...]  # of the groups
    train: Tensor  # (n,), each training row's group
    test: Tensor  # (n_test,)


def group_rows(
    column: str,
    values: pd.Series[Any],
    *,
    train: Index,
    test: Index,
    format: str | None = None,
    is_category: bool = False,
) -> Grouping:
    """The groups of all rows by this column; `format` is that of dates that are not ISO.

    Text has a group per level. Numbers and dates have bands, by quarters of the training rows.
    """
    kind = _recognise(column, values, format, is_category)
    if kind is Date:
        days, _ = as_days(column, values, format)
        names, codes = _bands(np.floor(days), train, _as_date)
    elif kind is Category or values.dtype.kind == "b":
        names, codes = _levels(as_text(values))
    else:
        names, codes = _numbers(as_numbers(column, values), train)
    names, codes = _name_gaps(names, codes)
    names, codes = _without_empty(names, codes)
    groups = torch.from_numpy(codes.astype(np.int64))
    return Grouping(column, tuple(names), groups[train], groups[test])


def _recognise(column: str, values: pd.Series[Any], format: str | None, is_category: bool) -> Any:
    """The kind of the column. Names and ids are refused, since each would be a group of its own."""
    try:
        return recognise(column, values, format, is_category)
    except NamesError:
        texts = [text for text in as_text(values) if text is not None]
        raise DataError(
            f"fairness: column {column} has {len(set(texts))} different texts in {len(texts)}"
            " rows, too many to tell results by; leave it out of fairness"
        ) from None
    except DataError as error:
        raise DataError(f"fairness: {error}") from None


def _levels(texts: list[str | None]) -> Codes:
    """A group per text, in alphabetical order, the rarer ones together."""
    names = sorted({text for text in texts if text is not None})
    positions: dict[str | None, int] = {name: position for position, name in enumerate(names)}
    positions[None] = GAP
    return _join_rare(names, np.array([positions[text] for text in texts]))


def _numbers(numbers: Floats, train: Index) -> Codes:
    """A group per number where these are few, and else bands."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    if np.isnan(distinct).any():
        codes = np.where(np.isnan(numbers), GAP, codes)
        distinct = distinct[~np.isnan(distinct)]
    if len(distinct) <= FEW_NUMBERS:
        return [_as_number(number) for number in distinct], codes
    return _bands(numbers, train, _as_number)


def _bands(numbers: Floats, train: Index, write: Callable[[float], str]) -> Codes:
    """Bands with about as many training rows each; a band includes its upper end."""
    training_numbers = numbers[train][~np.isnan(numbers[train])]
    if not len(training_numbers):
        return [], np.full(len(numbers), GAP)
    below_top = training_numbers[training_numbers < training_numbers.max()]
    highest = (
        below_top.max() if len(below_top) else training_numbers.max()
    )  # nothing is above the top
    quarters = np.quantile(training_numbers, QUARTERS, method="lower")
    edges = np.unique(np.minimum(quarters, highest))
    codes = np.searchsorted(edges, numbers, side="left")
    names = [f"up to {write(edges[0])}"]
    for lower, upper in itertools.pairwise(edges):
        names.append(f"{write(lower)} to {write(upper)}")
    names.append(f"over {write(edges[-1])}")
    return names, np.where(np.isnan(numbers), GAP, codes)


def _join_rare(names: list[str], codes: Index) -> Codes:
    """The most frequent levels, and the others as one."""
    if len(names) <= MOST_LEVELS:
        return names, codes
    counts = np.bincount(codes[codes != GAP], minlength=len(names))
    by_frequency = np.argsort(-counts, kind="stable")
    kept = sorted(by_frequency[: MOST_LEVELS - 1].tolist())
    kept_names = [names[code] for code in kept if names[code] != OTHER]
    positions = [_position(name, kept_names) for name in names]
    positions.append(GAP)  # where the code of a gap leads
    return [*kept_names, OTHER], np.array(positions)[codes]


def _position(name: str, kept: list[str]) -> int:
    return kept.index(name) if name in kept else len(kept)


def _name_gaps(names: list[str], codes: Index) -> Codes:
    """Rows without a value as a group of their own."""
    if not (codes == GAP).any():
        return names, codes
    if MISSING not in names:  # the table may say so in words already
        names = [*names, MISSING]
    return names, np.where(codes == GAP, names.index(MISSING), codes)


def _without_empty(names: list[str], codes: Index) -> Codes:
    """Only the groups that rows belong to."""
    inhabited, positions = np.unique(codes, return_inverse=True)
    return [names[code] for code in inhabited], positions


def _as_number(number: float) -> str:
    return f"{number:.6g}"


def _as_date(day: float) -> str:
    return f"{pd.Timestamp(0) + pd.Timedelta(days=day):%Y-%m-%d}"
