"""What may mislead in a table: rows that are tested on and trained on, ids among the features,
spellings that count as different, and features that give the outcome away.

Each is one line, however many columns it is about. None of them is an error.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.data.encoding import Encoding
from tacit.data.features import MAX_LEVELS, Category, Number, as_numbers, as_text, hash_column
from tacit.data.table_notes import TableNotes
from tacit.data.table_rows import TableRows

ID_WORDS = frozenset({"id", "ids", "pid", "nr", "no", "num", "code", "key", "mrn", "index", "row"})
ID_WORDS_WITHIN = ("number", "record", "barcode", "identifier")
FEWEST = 50  # rows, for an id without a name that says so
NEARLY_ALL = 0.95  # of an id's numbers are different
LONG_ID = 5  # digits
DENSE = 10  # numbers of an id lie in a span of at most so many times their count
FEW_LEVELS = 20  # a feature with more of them is no code of the outcome
UNEXPLAINED = 0.01  # of the rows that the largest class does not have
LEAST_CORRELATION = 0.99999
BY_CHANCE = 0.01  # of the test rows; if no more are repeated, a note is enough
SHOWN = 5  # columns or spellings in one line


def find_warnings(rows: TableRows, features: pd.DataFrame, encoding: Encoding) -> Iterator[str]:
    """Every warning that the columns of this table deserve."""
    yield from _identifiers(features, encoding)
    yield from _many_levels(encoding)
    yield from _spellings(rows, features, encoding)
    yield from _giveaways(rows, features, encoding)


def note_repeats(
    rows: TableRows, features: pd.DataFrame, train: Index, test: Index, notes: TableNotes
) -> None:
    """Counts the test rows with the same features as a training row, and warns of many."""
    hashes = np.zeros(len(features), np.uint64)
    for position in range(features.shape[1]):
        column = hash_column(features.iloc[:, position])
        hashes = hashes * np.uint64(1_000_003) + column
    repeated = np.isin(hashes[test], hashes[train])
    count = int(repeated.sum())
    if not count:
        return
    with_outcome = hashes * np.uint64(1_000_003) + hash_column(pd.Series(rows.outcomes))
    same_outcome = int(np.isin(with_outcome[test], with_outcome[train]).sum())
    outcomes = f"with the same {rows.target.name}"
    if same_outcome < count:
        outcomes = f"{same_outcome} of them {outcomes}"
    verb = "also occurs" if count == 1 else "also occur"
    text = (
        f"{count} of {len(test)} test rows {verb} among the training rows ({outcomes}), so results"
        " may look better than they are"
    )
    if count > BY_CHANCE * len(test):
        notes.warn(text)
    else:
        notes.add(text)


def _identifiers(features: pd.DataFrame, encoding: Encoding) -> Iterator[str]:
    """Numbers that tell rows apart, and from which nothing can be learnt."""
    names: list[str] = []
    for column in encoding.columns:
        if isinstance(column, Number) and _is_identifier(column.name, features[column.name]):
            names.append(column.name)
    if names:
        verb = "looks like an id" if len(names) == 1 else "look like ids"
        drop = ", ".join(names)
        yield (
            f"{_listed(names)} {verb}: whole numbers, different in nearly every row; nothing can be"
            f" learnt from ids, so add drop: [{drop}] if they are"
        )


def _many_levels(encoding: Encoding) -> Iterator[str]:
    """Texts of which most became "other", such as patients who have several rows each."""
    names: list[str] = []
    for column in encoding.columns:
        if isinstance(column, Category) and column.rare >= len(column.levels):
            names.append(column.name)
    if names:
        verb = "has" if len(names) == 1 else "have"
        drop = ", ".join(names)
        yield (
            f"{_listed(names)} {verb} more than {2 * MAX_LEVELS} different texts, most of which"
            f" become other; if they say whose a row is, add drop: [{drop}], and test on whole"
            f" groups: test: {{group: {names[0]}}}"
        )


def _is_identifier(name: str, values: pd.Series[Any]) -> bool:
    if values.dtype.kind == "b":
        return False
    numbers = as_numbers(name, values)
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < 2 or (numbers != np.round(numbers)).any():
        return False
    distinct = len(np.unique(numbers))
    if _says_id(name):
        return distinct == len(numbers)
    if len(numbers) < FEWEST or distinct < NEARLY_ALL * len(numbers):
        return False
    digits = {len(str(int(number))) for number in (numbers.min(), numbers.max())}
    has_fixed_length = len(digits) == 1 and min(digits) >= LONG_ID
    is_dense = np.ptp(numbers) < DENSE * len(numbers)
    return has_fixed_length or bool(is_dense)


def _says_id(name: str) -> bool:
    """Whether a column is called an id, such as `patient_id`, `PatientID` or `case no.`."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    words = {word.lower() for word in parts}
    if words & ID_WORDS:
        return True
    return any(word in name.lower() for word in ID_WORDS_WITHIN)


def _spellings(rows: TableRows, features: pd.DataFrame, encoding: Encoding) -> Iterator[str]:
    """Labels and levels that are different only as texts."""
    found: list[str] = []
    if rows.target.labels:
        found += _alike(rows.target.name, rows.target.labels)
    for column in encoding.columns:
        if isinstance(column, Category):
            distinct = features[column.name].drop_duplicates()
            texts = {text for text in as_text(distinct) if text is not None}
            found += _alike(column.name, tuple(sorted(texts)))
    if found:
        yield (
            f"spellings that count as different: {_listed(found, '; ')}; write them alike if they"
            " mean the same"
        )


def _alike(name: str, texts: tuple[str, ...]) -> list[str]:
    """`outcome: 'POS' and 'pos'` for texts that differ in case, spaces or the form of a letter."""
    spellings: dict[str, list[str]] = {}
    for text in texts:
        plain = unicodedata.normalize("NFKC", text).casefold()
        spellings.setdefault("".join(plain.split()), []).append(text)
    several = [same for same in spellings.values() if len(same) > 1]
    return [f"{name}: {' and '.join(repr(text) for text in same)}" for same in several]


def _giveaways(rows: TableRows, features: pd.DataFrame, encoding: Encoding) -> Iterator[str]:
    """Features that hold the outcome in other words."""
    determines = _tells_class if rows.target.labels else _is_multiple
    names: list[str] = []
    for column in encoding.columns:
        if determines(features[column.name], rows.outcomes):
            names.append(column.name)
    if names:
        verb = "tells" if len(names) == 1 else "tell"
        drop = ", ".join(names)
        yield (
            f"{_listed(names)} {verb} the {rows.target.name} of (nearly) every row; add drop:"
            f" [{drop}] unless this is known before the {rows.target.name} is"
        )


def _tells_class(values: pd.Series[Any], codes: NDArray[Any]) -> bool:
    """Whether each of the column's few levels goes with one class, in nearly all rows."""
    levels, distinct = pd.factorize(values, use_na_sentinel=False)
    if not 1 < len(distinct) <= FEW_LEVELS or len(codes) < FEW_LEVELS:
        return False
    counts = np.zeros((len(distinct), int(codes.max()) + 1))
    np.add.at(counts, (levels, codes), 1)
    unexplained = len(codes) - counts.max(1).sum()
    by_chance = len(codes) - counts.sum(0).max()
    return bool(unexplained <= UNEXPLAINED * by_chance)


def _is_multiple(values: pd.Series[Any], outcomes: NDArray[Any]) -> bool:
    """Whether the column is the outcome in other units."""
    if values.dtype.kind not in "biuf":
        return False
    numbers = as_numbers(str(values.name), values)
    known = ~np.isnan(numbers)
    x, y = numbers[known], outcomes[known]
    if len(x) < FEW_LEVELS or len(x) < NEARLY_ALL * len(numbers) or not np.ptp(x) or not np.ptp(y):
        return False
    return bool(abs(np.corrcoef(x, y)[0, 1]) > LEAST_CORRELATION)


def _listed(names: list[str], separator: str = ", ") -> str:
    more = len(names) - SHOWN
    text = separator.join(names[:SHOWN])
    return f"{text} and {more} more" if more > 0 else text
