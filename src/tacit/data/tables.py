"""Your own table, a CSV or parquet file, as a data set.

Text, dates and gaps become numbers by an encoding that is stated and saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import DataError, suggest
from tacit.core.events import OnEvent, Warned, ignore
from tacit.core.files import expanded
from tacit.data.dataset import Dataset, to_labels
from tacit.data.datasets import Source
from tacit.data.encoding import Encoding, LabelType, Target
from tacit.data.features import as_numbers, as_text
from tacit.data.holdout import encode_labels, hold_out, standardise_target
from tacit.data.readers import read_table

FEW = 20  # a target with so many different whole numbers, or fewer, is taken for classes


@dataclass(frozen=True)
class Table(Source, name="table"):
    """A CSV or parquet file: `target` names the column to predict, `client` the column that says
    which client a row belongs to.

    Text becomes categories; ISO dates are recognised, others need their format:
    `dates: {visit: "%d/%m/%Y"}`. `categories` are numeric columns that are really categories;
    `drop` leaves columns out. By default, `task` is classification if the target is text, true or
    false, or has only a few different whole numbers; otherwise it is regression.
    """

    path: str
    target: str
    drop: tuple[str, ...] = ()
    test_share: float = 0.2
    client: str | None = None
    dates: Mapping[str, str] = field(default_factory=dict, hash=False)
    categories: tuple[str, ...] = ()
    task: Literal["auto", "classification", "regression"] = "auto"

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        path = self._find(folder)
        table = read_table(path).rename(columns=str)
        self._check_content(table)
        self._check_columns(list(table.columns))
        with _naming(path):
            table, notes = _drop_without_outcome(table, self.target)
            for note in notes:
                on_event(Warned(f"{path.name}: {note}"))
            target, outcomes = _read_target(table[self.target], self.task)
            guess = _explain_guess(table[self.target], target, self.task)
            if guess is not None:
                notes.append(guess)
                if len(target.labels) != 2:  # that two values are classes needs no warning
                    on_event(Warned(f"{path.name}: {guess}"))
            return self._encode(path.name, table, target, outcomes, notes)

    def _encode(
        self,
        name: str,
        table: pd.DataFrame,
        target: Target,
        outcomes: NDArray[Any],
        notes: list[str],
    ) -> Dataset:
        """The data set: test rows are set aside first, and the encoding learns from the others."""
        owner, owners = self._read_owners(table)
        train, test = self._hold_out(target, outcomes, owner)
        target, y = _scale_outcomes(target, outcomes, train)
        features = table.drop(columns=list(self._not_features()))
        encoding = self._fit(features.iloc[train], target, owners, notes)
        train_owner = None
        if owner is not None:
            train_owner = to_labels(owner[train])
        return _assemble(name, features, y, (train, test), encoding, train_owner)

    def _hold_out(
        self, target: Target, outcomes: NDArray[Any], owner: NDArray[Any] | None
    ) -> tuple[Index, Index]:
        """The rows to train on, and those to test on."""
        codes = outcomes if target.labels else None
        return hold_out(self.target, len(outcomes), self.test_share, codes=codes, owner=owner)

    def _fit(
        self, features: pd.DataFrame, target: Target, owners: tuple[str, ...], notes: list[str]
    ) -> Encoding:
        """The encoding, from the features of the training rows."""
        return Encoding.fit(
            features,
            dates=self.dates,
            categories=self.categories,
            target=target,
            client=self.client,
            clients=owners,
            notes=tuple(notes),
        )

    def _read_owners(self, table: pd.DataFrame) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
        """Each row's owner as a number, and the owners' names; nothing where no column says so."""
        if self.client is None:
            return None, ()
        return _number_owners(self.client, table[self.client])

    def _find(self, folder: Path | None) -> Path:
        """The path as written or, where no file is there, in the data folder."""
        path = expanded(self.path).absolute()
        if folder is not None and not os.path.exists(path) and (folder / self.path).exists():
            return folder / self.path
        return path

    def _not_features(self) -> tuple[str, ...]:
        """The columns that are not learnt from."""
        if self.client is None:
            return (self.target, *self.drop)
        return (self.target, *self.drop, self.client)

    def _named_columns(self) -> list[tuple[str, str]]:
        """Each column that a setting names, and that setting."""
        named = [("target", self.target)]
        named += [("drop", name) for name in self.drop]
        if self.client is not None:
            named.append(("client", self.client))
        named += [("dates", name) for name in self.dates]
        named += [("categories", name) for name in self.categories]
        return named

    def _check_content(self, table: pd.DataFrame) -> None:
        """Refuses a file that was not read as its writer meant it."""
        columns = list(table.columns)
        if not len(table):
            raise DataError(f"{self.path} holds no rows, only the columns {', '.join(columns)}")
        if len(columns) == 1 and self.target not in columns:
            raise DataError(
                f"{self.path}: each line was read as one column, {columns[0]!r};"
                " separate cells with commas"
            )
        index = "Unnamed: 0"
        if index in columns and index not in self.drop:
            raise DataError(
                f"{self.path} has a column without a name, as pandas writes its index;"
                f" add drop: ['{index}']",
                parameters={"drop": index},
            )

    def _check_columns(self, columns: list[str]) -> None:
        """Refuses settings that name columns that do not exist or contradict each other."""
        not_features = self._not_features()
        for setting, name in self._named_columns():
            if name not in columns:
                text = f"{self.path} has no column {name!r}; {suggest(name, columns)}"
                raise DataError(text, parameters=(setting,))
        if self.target in (*self.drop, self.client):
            raise DataError(
                f"{self.path}: {self.target} is the target,"
                " so it can be neither dropped nor the client",
                parameters=("target", "drop", "client"),
            )
        if set(columns) <= set(not_features):
            raise DataError(f"{self.path}: no column is left to learn from", parameters=("drop",))
        for name in (*self.dates, *self.categories):
            if name in not_features:
                raise DataError(
                    f"{self.path}: {name} is not a feature,"
                    " so leave it out of dates and categories",
                    parameters=("dates", "categories"),
                )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the file's name to errors about a column."""
    try:
        yield
    except DataError as error:
        head = f"{path}: {error.head}" if error.head else str(path)
        parameters = error.values or error.parameters
        raise DataError(head, parameters=parameters, details=error.details) from None


def _drop_without_outcome(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows that have an outcome, and a note on those that have none."""
    has_outcome = np.array([text is not None for text in as_text(table[target])])
    if has_outcome.all():
        return table, []
    if not has_outcome.any():
        raise DataError(f"no row has a {target}; check the column, or name another target")
    dropped = int((~has_outcome).sum())
    rows = f"{dropped} rows" if dropped > 1 else "1 row"
    verb = "were" if dropped > 1 else "was"
    return table[has_outcome], [f"{rows} without {target} {verb} left out"]


def _read_target(values: pd.Series[Any], task: str) -> tuple[Target, NDArray[Any]]:
    """What the target is, and each row's position among its labels, or its number."""
    name = str(values.name)
    is_numeric = values.dtype.kind in "iuf"
    numbers = np.zeros(0)
    if is_numeric or task == "regression":
        numbers = as_numbers(name, values)
    is_whole = is_numeric and bool((numbers == np.round(numbers)).all())
    has_classes = not is_numeric or (is_whole and len(np.unique(numbers)) <= FEW)
    if task == "regression" or (task == "auto" and not has_classes):
        return Target(name, "regression"), numbers
    rows = numbers.astype(np.int64) if is_whole else np.array(as_text(values))
    classes, codes = encode_labels(name, rows)
    labels = tuple(str(label) for label in classes)
    return Target(name, "classification", labels, _label_type(values, labels, is_whole)), codes


def _label_type(values: pd.Series[Any], labels: tuple[str, ...], is_whole: bool) -> LabelType:
    if is_whole:
        return "integer"
    if values.dtype.kind in "iuf":
        return "number"
    return "boolean" if set(labels) <= {"True", "False"} else "text"


def _explain_guess(values: pd.Series[Any], target: Target, task: str) -> str | None:
    """Says what `task: auto` took a numeric target for; None where it did not guess."""
    if task != "auto" or values.dtype.kind not in "iuf":
        return None
    if not target.labels:
        remedy = "if its values are classes, set task: classification"
        return f"{target.name} is taken for a measurement; {remedy}"
    count = len(target.labels)
    remedy = "if they are measurements, set task: regression"
    return f"{target.name} has {count} different whole numbers and is taken for classes; {remedy}"


def _assemble(
    name: str,
    features: pd.DataFrame,
    y: Tensor,
    rows: tuple[Index, Index],
    encoding: Encoding,
    train_owner: Tensor | None,
) -> Dataset:
    """The data set, from all rows; `rows` are those to train on, and those to test on."""
    train, test = rows
    x = encoding.apply(features)
    centre, spread = encoding.moments()
    target = encoding.target
    assert target is not None
    return Dataset(
        name,
        x[train],
        y[train],
        x[test],
        y[test],
        labels=target.labels,
        columns=encoding.names,
        centre=centre,
        spread=spread,
        task=target.task,
        owner=train_owner,
        owners=encoding.clients,
        client=encoding.client,
        encoding=encoding,
        frame=features.iloc[np.concatenate(rows)],
        target_centre=target.centre,
        target_spread=target.spread,
    )


def _scale_outcomes(target: Target, outcomes: NDArray[Any], train: Index) -> tuple[Target, Tensor]:
    """The outcomes as a model learns them: labels, or numbers that are standardised."""
    if target.labels:
        return target, to_labels(outcomes)
    y, scale = standardise_target(target.name, outcomes, train)
    scaled = replace(target, centre=scale["target_centre"], spread=scale["target_spread"])
    return scaled, y


def _number_owners(column: str, values: pd.Series[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Each row's owner as a number, and the owners' names in order."""
    texts = as_text(values)
    unknown = sum(text is None for text in texts)
    if unknown:
        raise DataError(
            f"{unknown} rows do not say in {column} whose they are;"
            " fill them in, or leave these rows out"
        )
    is_number = values.dtype.kind in "biuf"
    sortable = values if is_number else np.array(texts)
    owners, owner = np.unique(sortable, return_inverse=True)
    names = [text for text in as_text(pd.Series(owners)) if text is not None]
    return owner, tuple(names)
