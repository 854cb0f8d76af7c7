"""Your own table, a CSV or parquet file, as a data set.

Text, dates and gaps become numbers by an encoding that is stated and saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import DataError, StudyError, suggest
from tacit.core.events import OnEvent, ignore
from tacit.data.dataset import Dataset, to_labels
from tacit.data.datasets import USUAL_TEST, Source, data_folder
from tacit.data.encoding import Encoding, Target
from tacit.data.groupings import Grouping, group_rows
from tacit.data.holdout import hold_out
from tacit.data.outcomes import (
    drop_without_outcome,
    explain_guess,
    number_owners,
    read_target,
    scale_outcomes,
)
from tacit.data.own_frames import is_frame_name
from tacit.data.positive import find_positive
from tacit.data.readers import repeated_names
from tacit.data.table_files import find_table, naming, open_table, title_of
from tacit.data.table_notes import TableNotes
from tacit.data.table_rows import (
    TableRows,
    add_test_file,
    choose_test,
    describe_test,
    name_single_class,
    training_owners,
)
from tacit.data.table_warnings import find_warnings, note_repeats
from tacit.data.test_choice import EACH, TestChoice, as_setting


@dataclass(frozen=True)
class Table(Source, name="table"):
    """A CSV or parquet file: `target` names the column to predict, `client` the column that says
    which client a row belongs to.

    Text becomes categories; ISO dates are recognised, others need their format:
    `dates: {visit: "%d/%m/%Y"}`. `categories` are numeric columns that are really categories;
    `drop` leaves columns out. By default, `task` is classification if the target is text, true or
    false, or has only a few different whole numbers; otherwise it is regression.

    `positive` names the one of two classes that is looked for, such as `ill`. `fairness` lists
    columns by which results are also told, such as sex and age: features or not.

    `test` says which rows are tested on, in place of a share of all rows: a file of its own
    (`test: patients_2025.csv`), whole groups (`{group: patient}`), the latest rows
    (`{time: admitted}` or `{time: admitted, from: 2025-01-01}`), or the rows of one client
    (`{client: Turku}`), which takes no part in training; `{client: each}` leaves out one client
    after the other.
    """

    path: str
    target: str
    drop: tuple[str, ...] = ()
    test_share: float = 0.2
    client: str | None = None
    dates: Mapping[str, str] = field(default_factory=dict, hash=False)
    categories: tuple[str, ...] = ()
    task: Literal["auto", "classification", "regression"] = "auto"
    positive: str | int | bool | None = None
    fairness: tuple[str, ...] = ()
    test: str | float | Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        choice = self._choice  # refuses at once what makes no sense
        if choice.client is not None and self.client is None:
            raise StudyError(
                f"test: {choice.client!r} is a client, and no column says whose a row is; add"
                " client: column"
            )
        if choice.group is not None and choice.group == self.client:
            raise StudyError(
                f"test: {choice.group} says whose a row is; to test on clients that do not train,"
                " write {client: each}, or name one"
            )
        if isinstance(self.test, Mapping):  # YAML reads dates and numbers
            texts = {str(key): as_setting(value) for key, value in self.test.items()}
            object.__setattr__(self, "test", texts)

    @property
    def _choice(self) -> TestChoice:
        return TestChoice.read(self.test)

    @property
    def title(self) -> str:
        """What its notes call it: its file's name, unless it is a data frame."""
        return title_of(Path(self.path))

    @property
    def tested_on(self) -> str:
        return self._choice.text or USUAL_TEST

    def variants(self) -> tuple[Table, ...]:
        """Itself or, where each client is left out in turn, a table for every client."""
        if self._choice.client != EACH:
            return (self,)
        path = find_table(self.path, data_folder())
        table = self._read(path)
        with naming(path):
            table, _ = drop_without_outcome(table, self.target)
            _, owners = self._read_owners(table)
        return tuple(replace(self, test={"client": owner}) for owner in owners)

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        path = find_table(self.path, folder)
        table = self._read(path)
        notes = TableNotes(title_of(path), on_event)
        if not is_frame_name(self.path):
            for name in repeated_names(path):
                notes.warn(
                    f"two columns are called {name}; the second is read as {name}.1, so rename one"
                )
        with naming(path):
            rows = self._read_rows(table, notes)
        sources = str(path)
        if self._choice.path is not None:
            test_path = find_table(self._choice.path, folder)
            rows = self._add_test_file(rows, test_path, notes)
            sources = f"{path} with {title_of(test_path)}"
        with naming(sources):
            return self._encode(rows, notes)

    def _read_rows(self, table: pd.DataFrame, notes: TableNotes) -> TableRows:
        """The rows that have an outcome."""
        table, gaps = drop_without_outcome(table, self.target)
        if gaps:
            notes.warn(gaps)
        target, outcomes = read_target(table[self.target], self.task)
        guess = explain_guess(table[self.target], target, self.task)
        if guess and len(target.labels) == 2:  # that two values are classes needs no warning
            notes.add(guess)
        elif guess:
            notes.warn(guess)
        owner, owners = self._read_owners(table)
        return TableRows(table, target, outcomes, owner, owners, own=len(table))

    def _add_test_file(self, rows: TableRows, path: Path, notes: TableNotes) -> TableRows:
        """The rows with those of the test file behind them."""
        if not path.suffix and not path.exists() and not is_frame_name(path.name):
            raise DataError(
                f"test: there is no file {path}; to choose rows of the table, write"
                " {client: Turku}, {group: patient} or {time: admitted}"
            )
        test_table = open_table(path)
        if not len(test_table):
            raise DataError(f"{path} holds no rows to test on")
        not_needed = {*self.drop, self.client} - set(self.fairness) | {self.client}
        needed = [name for name in rows.table.columns if name not in not_needed]
        missing = [name for name in needed if name not in test_table.columns]
        if missing:
            names = ", ".join(missing)
            raise DataError(
                f"{path} lacks columns that {notes.name} has: {names}; a test file needs the same"
                " columns"
            )
        with naming(path):
            test_table, gaps = drop_without_outcome(test_table, self.target)
            if gaps:
                notes.warn(f"{title_of(path)}: {gaps}")
            return add_test_file(rows, test_table)

    def _encode(self, rows: TableRows, notes: TableNotes) -> Dataset:
        """The data set: test rows are set aside first, and the encoding learns from the others."""
        train, test = self._hold_out(rows)
        self._note_test(rows, test, notes)
        target, y = scale_outcomes(rows.target, rows.outcomes, train)
        positive = None
        if self.positive is not None:
            positive = find_positive(self.target, self.positive, target.labels)
        owner, owners = training_owners(rows, train, self._choice.client)
        features = rows.table.drop(columns=list(self._not_features()))
        encoding = self._fit(features.iloc[train], target, owners)
        note_repeats(rows, features, train, test, notes)
        for warning in find_warnings(rows, features, encoding):
            notes.warn(warning)
        encoding = replace(encoding, notes=tuple(notes.texts))
        dataset = _assemble(notes.name, features, y, (train, test), encoding, owner)
        return replace(
            dataset,
            positive=positive,
            groupings=self._group(rows.table, train, test),
            left_out=self._choice.client,
            person=self._people(rows.table, train),
        )

    def _people(self, table: pd.DataFrame, train: Index) -> Tensor | None:
        """Whom each training row is of, where whole groups are tested on."""
        if self._choice.group is None:
            return None
        codes, _ = pd.factorize(table[self._choice.group])
        return to_labels(codes[train])

    def _hold_out(self, rows: TableRows) -> tuple[Index, Index]:
        """The rows to train on, and those to test on."""
        if self.test is None:
            codes = rows.outcomes if rows.target.labels else None
            count = len(rows.outcomes)
            return hold_out(self.target, count, self.test_share, codes=codes, owner=rows.owner)
        return choose_test(
            rows,
            self._choice,
            share=self.test_share,
            client=self.client,
            format=self.dates.get(self._choice.time or ""),
        )

    def _note_test(self, rows: TableRows, test: Index, notes: TableNotes) -> None:
        """Says which rows are tested on, where that is no share of all, and what misleads in it."""
        choice = self._choice
        if self.test is None:
            return
        if choice.client is None:
            notes.add(describe_test(rows, choice, test))
        label = name_single_class(rows, test)
        if label is not None:
            notes.warn(
                f"all rows of {self.client} {choice.client} are {label!r}, so results on them mean"
                " little"
            )
        if choice.time is not None and choice.time not in self.drop:
            notes.warn(
                f"{choice.time} is also learnt from, and no training row is as late as the test"
                f" rows; add drop: [{choice.time}] unless that is meant"
            )

    def _fit(
        self,
        features: pd.DataFrame,
        target: Target,
        owners: tuple[str, ...],
    ) -> Encoding:
        """The encoding, from the features of the training rows."""
        names = list(features.columns)
        return Encoding.fit(
            features,
            dates={name: format for name, format in self.dates.items() if name in names},
            categories=[name for name in self.categories if name in names],
            target=target,
            client=self.client,
            clients=owners,
        )

    def _group(self, table: pd.DataFrame, train: Index, test: Index) -> tuple[Grouping, ...]:
        """The groups by which results are told."""
        groupings: list[Grouping] = []
        for column in dict.fromkeys(self.fairness):
            grouping = group_rows(
                column,
                table[column],
                train=train,
                test=test,
                format=self.dates.get(column),
                is_category=column in self.categories,
            )
            groupings.append(grouping)
        return tuple(groupings)

    def _read_owners(self, table: pd.DataFrame) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
        """Each row's owner as a number, and the owners' names; nothing where no column says so."""
        if self.client is None:
            return None, ()
        return number_owners(self.client, table[self.client])

    def _read(self, path: Path) -> pd.DataFrame:
        """The file, if the settings fit its columns."""
        table = open_table(path)
        self._check_content(table)
        self._check_columns(list(table.columns))
        return table

    def _not_features(self) -> tuple[str, ...]:
        """The columns that are not learnt from."""
        others = [name for name in (self.client, self._choice.group) if name is not None]
        return tuple(dict.fromkeys((self.target, *self.drop, *others)))

    def _named_columns(self) -> list[tuple[str, str]]:
        """Each column that a setting names, and that setting."""
        named = [("target", self.target)]
        named += [("drop", name) for name in self.drop]
        if self.client is not None:
            named.append(("client", self.client))
        named += [("dates", name) for name in self.dates]
        named += [("categories", name) for name in self.categories]
        named += [("fairness", name) for name in self.fairness]
        if self._choice.column is not None:
            named.append(("test", self._choice.column))
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
        apart = (*self.fairness, self._choice.column)
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
        if self.target == self._choice.column:
            raise DataError(
                f"{self.path}: {self.target} is the target, so it cannot say which rows to test on"
            )
        if self.target in self.fairness:
            raise DataError(
                f"{self.path}: {self.target} is the target, and results are told by its classes"
                " in any case; leave it out of fairness"
            )
        if set(columns) <= set(not_features):
            raise DataError(f"{self.path}: no column is left to learn from", parameters=("drop",))
        for name in (*self.dates, *self.categories):
            if name in not_features and name not in apart:
                raise DataError(
                    f"{self.path}: {name} is not a feature,"
                    " so leave it out of dates and categories",
                    parameters=("dates", "categories"),
                )


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
