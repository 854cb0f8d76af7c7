"""Vertical data: parties hold different columns about people, some of whom are known to all."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.core.registry import Registered


@dataclass(frozen=True)
class Holding:
    """What one party holds: the rows of these people, in these columns."""

    rows: Index
    columns: Index


@dataclass(frozen=True)
class ColumnSplit(Registered, family="column_splits", home="tacit.data.splits.columns"):
    """Called as `split(rows, columns, rng)`; returns one Holding per party."""

    @abstractmethod
    def __call__(self, rows: int, columns: int, rng: np.random.Generator) -> list[Holding]: ...


@dataclass(frozen=True)
class Columns(ColumnSplit, name="columns"):
    """Divides the columns among parties; each column belongs to one party.

    `parties: 2` cuts them, in their order, into parts of about equal size; `parties: [[0, 1],
    [2, 3]]` names them. A share `overlap` of the people is known to all parties; everybody else is
    known to one party only.

    >>> holdings = Columns(2, overlap=0.5)(8, 3, np.random.default_rng(0))
    >>> [(len(holding.rows), holding.columns.tolist()) for holding in holdings]
    [(6, [0, 1]), (6, [2])]
    """

    parties: int | tuple[tuple[int, ...], ...] = 2
    overlap: float = 1.0

    def __call__(self, rows: int, columns: int, rng: np.random.Generator) -> list[Holding]:
        if not 0 <= self.overlap <= 1:
            raise DataError(f"columns.overlap: expected a share from 0 to 1, got {self.overlap}")
        columns_by_party = self._divide_columns(columns)
        people = rng.permutation(rows)
        count = round(self.overlap * rows)
        known_to_all = people[:count]
        known_to_one = np.array_split(people[count:], len(columns_by_party))
        holdings: list[Holding] = []
        for party, held in enumerate(columns_by_party):
            holder_rows = np.sort(np.concatenate([known_to_all, known_to_one[party]]))
            if not len(holder_rows):
                raise DataError(
                    f"columns leaves party {party} without a person;"
                    " use more rows or a larger overlap"
                )
            holdings.append(Holding(holder_rows, np.array(held, dtype=np.int64)))
        return holdings

    def _divide_columns(self, columns: int) -> Sequence[Sequence[int]]:
        """Each party's columns."""
        if isinstance(self.parties, int):
            if not 1 <= self.parties <= columns:
                wanted = f"1 to {columns} parties for {columns} columns"
                raise DataError(f"columns.parties: expected {wanted}, got {self.parties}")
            runs = np.array_split(np.arange(columns), self.parties)
            return [run.tolist() for run in runs]
        listed = sorted(itertools.chain.from_iterable(self.parties))
        if listed != list(range(columns)) or not all(self.parties):
            wanted = f"each of the columns 0 to {columns - 1} once"
            raise DataError(f"columns.parties: expected {wanted}, got {self.parties}")
        return self.parties
