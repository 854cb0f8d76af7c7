"""Vertical data: parties hold different columns about people of whom only some are common to all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.core.errors import DataError
from tacit.core.registry import Registered
from tacit.data.splits.split import Index


@dataclass(frozen=True)
class Holding:
    """What one party holds: these people's rows, of these columns."""

    rows: Index
    columns: Index


@dataclass(frozen=True)
class ColumnSplit(Registered, family="column_splits", home="tacit.data.splits.columns"):
    """Called as `split(rows, columns, rng)`; returns one Holding per party."""

    @abstractmethod
    def __call__(self, rows: int, columns: int, rng: np.random.Generator) -> list[Holding]: ...


@dataclass(frozen=True)
class Columns(ColumnSplit, name="columns"):
    """Divides the columns among parties; every column has one holder.

    `parties: 2` cuts them into even runs, `parties: [[0, 1], [2, 3]]` names them. A share `overlap` of the people is
    known to all parties; each of the others to one party alone.

    >>> [(len(h.rows), h.columns.tolist()) for h in Columns(2, overlap=0.5)(8, 3, np.random.default_rng(0))]
    [(6, [0, 1]), (6, [2])]
    """

    parties: int | tuple[tuple[int, ...], ...] = 2
    overlap: float = 1.0

    def __call__(self, rows: int, columns: int, rng: np.random.Generator) -> list[Holding]:
        if not 0 <= self.overlap <= 1:
            raise DataError(f"columns.overlap: expected a share from 0 to 1, got {self.overlap}")
        held = self._held(columns)
        people = rng.permutation(rows)
        common = round(self.overlap * rows)
        others = np.array_split(people[common:], len(held))
        parts = [np.sort(np.concatenate([people[:common], own])) for own in others]
        if empty := [k for k, part in enumerate(parts) if not len(part)]:
            raise DataError(
                f"columns leaves party {empty[0]} without a person; use more rows or a larger overlap"
            )
        return [
            Holding(part, np.array(cols, dtype=np.int64))
            for part, cols in zip(parts, held, strict=True)
        ]

    def _held(self, columns: int) -> Sequence[Sequence[int]]:
        if isinstance(self.parties, int):
            if not 1 <= self.parties <= columns:
                raise DataError(
                    f"columns.parties: expected 1 to {columns} parties for {columns} columns, got {self.parties}"
                )
            return [part.tolist() for part in np.array_split(np.arange(columns), self.parties)]
        named = sorted(column for part in self.parties for column in part)
        if named != list(range(columns)) or not all(self.parties):
            raise DataError(
                f"columns.parties: expected each of the columns 0 to {columns - 1} once, got {self.parties}"
            )
        return self.parties
