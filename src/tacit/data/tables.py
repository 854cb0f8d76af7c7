"""Your own table, a CSV or parquet file, as a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import DataError, suggest
from tacit.core.events import OnEvent, ignore
from tacit.data.datasets import Dataset, Source, split_off_test
from tacit.data.readers import read_table


@dataclass(frozen=True)
class Table(Source, name="table"):
    """A CSV or parquet file with numeric columns: `target` names the column to predict; `drop` leaves columns out."""

    path: str
    target: str
    drop: tuple[str, ...] = ()
    test_share: float = 0.2

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        given = Path(self.path).expanduser()
        path = folder / given if folder and not given.exists() else given
        table = read_table(path)
        self._check_columns(table)
        features = table.drop(columns=[self.target, *self.drop])
        if bad := [str(name) for name, kind in features.dtypes.items() if kind.kind not in "biuf"]:
            raise DataError(
                f"{path}: expected numbers, but {', '.join(bad)} hold text; encode them or list them under drop"
            )
        if features.shape[1] == 0:
            raise DataError(f"{path}: no column is left to learn from")
        if gaps := [str(name) for name in table.columns if name not in self.drop and table[name].isna().any()]:
            raise DataError(
                f"{path}: missing values in {', '.join(gaps)}; fill them, drop the rows or drop the columns"
            )
        y = table[self.target].to_numpy()
        labels = [str(label) for label in np.unique(y)]
        return split_off_test(path.stem, features.to_numpy(np.float64), y, labels, share=self.test_share)

    def _check_columns(self, table: Any) -> None:
        known = [str(name) for name in table.columns]
        for name in (self.target, *self.drop):
            if name not in known:
                raise DataError(f"{self.path} has no column {name!r}; {suggest(name, known)}")
