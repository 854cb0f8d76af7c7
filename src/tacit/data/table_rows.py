"""The rows of a table that have an outcome: what each is to be predicted as, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import DataError, suggest
from tacit.data.dataset import to_labels
from tacit.data.encoding import Target
from tacit.data.holdout import check_share
from tacit.data.outcomes import read_more_outcomes
from tacit.data.own_frames import is_frame_name
from tacit.data.test_choice import (
    EACH,
    Mask,
    TestChoice,
    latest_rows,
    rows_of_client,
    rows_of_groups,
)


@dataclass(frozen=True)
class TableRows:
    """All rows; those of a test file, if there is one, come last."""

    table: pd.DataFrame
    target: Target
    outcomes: NDArray[Any]  # positions among the target's labels, or numbers
    owner: Index | None  # each row's, as a position among the owners
    owners: tuple[str, ...]
    own: int  # rows of the table itself

    @property
    def codes(self) -> list[Index]:
        """What must not vanish from the training rows: classes, and owners."""
        codes: list[Index] = []
        if self.target.labels:
            codes.append(self.outcomes)
        if self.owner is not None:
            codes.append(self.owner)
        return codes


def add_test_file(rows: TableRows, test_table: pd.DataFrame) -> TableRows:
    """The rows with those of a test file behind them."""
    outcomes = read_more_outcomes(rows.target, test_table[rows.target.name])
    columns = list(rows.table.columns)
    table = pd.concat([rows.table, test_table.reindex(columns=columns)], ignore_index=True)
    return replace(rows, table=table, outcomes=np.concatenate([rows.outcomes, outcomes]))


def choose_test(
    rows: TableRows, choice: TestChoice, *, share: float, client: str | None, format: str | None
) -> tuple[Index, Index]:
    """(train, test) as the user has chosen; `format` is that of the dates to choose by."""
    check_share(rows.target.name, share)
    if choice.client is not None:
        if choice.client == EACH:
            raise DataError("test: each client in turn makes a study of it; name one client here")
        if choice.client not in rows.owners:
            hint = suggest(choice.client, rows.owners)
            raise DataError(f"test: {client} names no client {choice.client!r}; {hint}")
        assert rows.owner is not None
        is_test = rows_of_client(str(client), choice.client, rows.owner, rows.owners)
    elif choice.group is not None:
        values = rows.table[choice.group]
        is_test = rows_of_groups(choice.group, values, share, rows.codes)
    elif choice.time is not None:
        values = rows.table[choice.time]
        since = choice.since
        is_test = latest_rows(choice.time, values, share=share, since=since, format=format)
    else:
        is_test = np.arange(len(rows.table)) >= rows.own
    _check_test(rows, is_test, is_client=choice.client is not None)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def describe_test(rows: TableRows, choice: TestChoice, test: Index) -> str:
    """Which rows are tested on, in a sentence."""
    count = f"{len(test)} rows" if len(test) > 1 else "1 row"
    if choice.group is not None:
        groups = rows.table[choice.group]
        tested = groups.iloc[test].nunique()
        return (
            f"tested on {count}, those of {tested} of {groups.nunique()} groups of {choice.group},"
            " which is not learnt from"
        )
    if choice.time is not None:
        since = f"since {choice.since}" if choice.since else "that are the latest"
        return f"tested on the {count} {since} by {choice.time}"
    name = str(choice.path)
    return f"tested on the {count} of {'a data frame' if is_frame_name(name) else name}"


def training_owners(
    rows: TableRows, train: Index, left_out: str | None
) -> tuple[Tensor | None, tuple[str, ...]]:
    """The owner of each training row, and the owners' names, without the one that is left out."""
    if rows.owner is None:
        return None, ()
    codes = rows.owner[train]
    if left_out is None:
        return to_labels(codes), rows.owners
    codes = codes - (codes > rows.owners.index(left_out))
    return to_labels(codes), tuple(name for name in rows.owners if name != left_out)


def name_single_class(rows: TableRows, test: Index) -> str | None:
    """The class of all test rows, if there is no other among them."""
    if not rows.target.labels:
        return None
    classes = np.unique(rows.outcomes[test])
    return rows.target.labels[classes[0]] if len(classes) == 1 else None


def _check_test(rows: TableRows, is_test: Mask, *, is_client: bool) -> None:
    """Refuses test rows that cannot be learnt for, or whose results would mean nothing."""
    if not is_test.any():
        raise DataError("test: there is no row to test on")
    _check_owners(rows, is_test, is_client=is_client)
    if rows.target.labels:
        _check_classes(rows, is_test, is_client=is_client)
    elif len(np.unique(rows.outcomes[is_test])) < 2:
        raise DataError(
            f"test: all test rows have the same {rows.target.name}, so R2 means nothing;"
            " test on more rows"
        )


def _check_owners(rows: TableRows, is_test: Mask, *, is_client: bool) -> None:
    """Refuses a client that would have nothing to train on."""
    if rows.owner is None or is_client:
        return
    own_tests = is_test[: rows.own]
    counts = np.bincount(rows.owner[~own_tests], minlength=len(rows.owners))
    if not counts.all():
        owner = rows.owners[int(counts.argmin())]
        raise DataError(
            f"test: all rows of the client {owner} would be test rows, so it has nothing to train"
            " on; leave its rows out, or test on others"
        )


def _check_classes(rows: TableRows, is_test: Mask, *, is_client: bool) -> None:
    labels = rows.target.labels
    to_learn = np.bincount(rows.outcomes[~is_test], minlength=len(labels))
    if not to_learn.all():
        label = labels[int(to_learn.argmin())]
        raise DataError(
            f"test: all rows with the {rows.target.name} {label!r} would be test rows, so it cannot"
            " be learnt; leave these rows out, or test on others"
        )
    single = name_single_class(rows, np.flatnonzero(is_test))
    if single is not None and not is_client:  # of a client left out, a warning says so
        raise DataError(
            f"test: all {int(is_test.sum())} test rows are {single!r}, so results would mean"
            " nothing; test on rows of several classes"
        )
