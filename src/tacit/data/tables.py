"""Your own table, a CSV or parquet file, as a data set: text, dates and gaps become numbers by a stated encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.core.errors import DataError, suggest
from tacit.core.events import OnEvent, Warned, ignore
from tacit.data.dataset import Dataset, to_labels
from tacit.data.datasets import Source
from tacit.data.encoding import Encoding, Target
from tacit.data.features import as_numbers, as_text
from tacit.data.holdout import encode_labels, hold_out, standardise_target
from tacit.data.readers import read_table

FEW = 20  # different whole numbers at most, to be taken for classes


@dataclass(frozen=True)
class Table(Source, name="table"):
    """A CSV or parquet file: `target` names the column to predict, `client` the one that says whose row it is.

    Text becomes categories; ISO dates are recognised, others need their format: `dates: {visit: "%d/%m/%Y"}`.
    `categories` are numeric columns that are really categories; `drop` leaves columns out. `task` is by default
    classification where the target is text, boolean or few whole numbers, and regression otherwise.
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
        self._check_columns(table)
        with _named(path):
            table, notes = _with_outcome(table, self.target)
            for note in notes:
                on_event(Warned(f"{path.name}: {note}"))
            target, outcomes = _read_target(table[self.target], self.task)
            chosen = _chosen(table[self.target], target, self.task)
            if chosen and len(target.labels) != 2:  # two values are classes without saying
                on_event(Warned(f"{path.name}: {chosen}"))
            notes += [chosen] if chosen else []
            return self._encoded(path.name, table, target, outcomes, notes)

    def _encoded(
        self,
        name: str,
        table: pd.DataFrame,
        target: Target,
        outcomes: NDArray[Any],
        notes: list[str],
    ) -> Dataset:
        """The data set: test rows are set aside first, and the encoding learns from the others."""
        owner, owners = (
            (None, ()) if self.client is None else _owners(self.client, table[self.client])
        )
        codes = outcomes if target.labels else None
        train, test = hold_out(self.target, len(table), self.test_share, codes=codes, owner=owner)
        if target.labels:
            y = to_labels(outcomes)
        else:
            y, scale = standardise_target(self.target, outcomes, train)
            target = Target(
                self.target,
                "regression",
                centre=scale["target_centre"],
                spread=scale["target_spread"],
            )
        features = table.drop(
            columns=[self.target, *self.drop, *([self.client] if self.client else [])]
        )
        about: Any = {
            "target": target,
            "client": self.client,
            "clients": owners,
            "notes": tuple(notes),
        }
        encoding = Encoding.fit(
            features.iloc[train], dates=self.dates, categories=self.categories, **about
        )
        x, (centre, spread) = encoding.apply(features), encoding.moments()
        return Dataset(
            name,
            *(x[train], y[train], x[test], y[test]),
            labels=target.labels,
            columns=encoding.names,
            centre=centre,
            spread=spread,
            task=target.task,
            owner=None if owner is None else to_labels(owner[train]),
            owners=owners,
            client=self.client,
            encoding=encoding,
            frame=features.iloc[np.concatenate([train, test])],
            target_centre=target.centre,
            target_spread=target.spread,
        )

    def _find(self, folder: Path | None) -> Path:
        """The file as named, from here or from the data folder."""
        given = Path(self.path).expanduser().absolute()
        return (
            folder / self.path
            if folder and not given.exists() and (folder / self.path).exists()
            else given
        )

    def _check_columns(self, table: pd.DataFrame) -> None:
        known = list(table.columns)
        if not len(table):
            raise DataError(f"{self.path} holds no rows, only the columns {', '.join(known)}")
        if len(known) == 1 and self.target not in known:
            raise DataError(
                f"{self.path}: each line was read as one column, {known[0]!r}; separate cells with commas"
            )
        if (index := "Unnamed: 0") in known and index not in self.drop:
            raise DataError(
                f"{self.path} has a column without a name, as pandas writes its index; add drop: ['{index}']"
            )
        named = [
            self.target,
            *self.drop,
            *self.dates,
            *self.categories,
            *([self.client] if self.client else []),
        ]
        for name in named:
            if name not in known:
                raise DataError(f"{self.path} has no column {name!r}; {suggest(name, known)}")
        if self.target in (*self.drop, self.client):
            raise DataError(
                f"{self.path}: {self.target} is the target, so it can be neither dropped nor the client"
            )
        if set(known) <= {self.target, self.client, *self.drop}:
            raise DataError(f"{self.path}: no column is left to learn from")
        if both := [
            name
            for name in (*self.dates, *self.categories)
            if name in (*self.drop, self.target, self.client)
        ]:
            raise DataError(
                f"{self.path}: {both[0]} is no feature, so leave it out of dates and categories"
            )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors about a column, with the file that it is in."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _with_outcome(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows that have an outcome, and a note on those that have none."""
    known = np.array([text is not None for text in as_text(table[target])])
    if known.all():
        return table, []
    if not known.any():
        raise DataError(f"no row has a {target}; check the column, or name another target")
    lost = int((~known).sum())
    return table[known], [
        f"{lost} rows without {target} were left out"
        if lost > 1
        else f"1 row without {target} was left out"
    ]


def _read_target(values: pd.Series[Any], task: str) -> tuple[Target, NDArray[Any]]:
    """What the target is, and each row's place among its labels, or its number."""
    name, numeric = str(values.name), values.dtype.kind in "iuf"
    numbers = as_numbers(name, values) if numeric or task == "regression" else np.zeros(0)
    whole = numeric and bool((numbers == np.round(numbers)).all())
    classes = not numeric or (whole and len(np.unique(numbers)) <= FEW)
    if task == "regression" or (task == "auto" and not classes):
        return Target(name, "regression"), numbers
    labels, codes = encode_labels(
        name, numbers.astype(np.int64) if whole else np.array(as_text(values))
    )
    boolean = not numeric and set(labels.tolist()) <= {"True", "False"}
    kind: Any = "integer" if whole else "number" if numeric else "boolean" if boolean else "text"
    return Target(name, "classification", tuple(str(label) for label in labels), kind), codes


def _chosen(values: pd.Series[Any], target: Target, task: str) -> str | None:
    """Says what `task: auto` took a numeric target for."""
    if task != "auto" or values.dtype.kind not in "iuf":
        return None
    if target.labels:
        few = f"{target.name} has {len(target.labels)} different whole numbers and is taken for classes"
        return f"{few}; if they are measurements, set task: regression"
    return f"{target.name} is taken for a measurement; if its values are classes, set task: classification"


def _owners(column: str, values: pd.Series[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Whose each row is, and their names in order."""
    texts = as_text(values)
    if unknown := sum(text is None for text in texts):
        raise DataError(
            f"{unknown} rows do not say in {column} whose they are; fill them in, or leave these rows out"
        )
    ordered = values if values.dtype.kind in "biuf" else np.array(texts)
    names, owner = np.unique(ordered, return_inverse=True)
    return owner, tuple(text for text in as_text(pd.Series(names)) if text is not None)
