"""Your own table, a CSV or parquet file, as a data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        path = self._find(folder)
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
        x = features.to_numpy(np.float64)
        if (odd := ~np.isfinite(x).all(0)).any():
            raise DataError(
                f"{path}: infinite values in {', '.join(map(str, features.columns[odd]))}; mend or drop them"
            )
        made = split_off_test(path.name, x, table[self.target].to_numpy(), share=self.test_share)
        return replace(made, columns=tuple(map(str, features.columns)))

    def _find(self, folder: Path | None) -> Path:
        """The file as named, from here or from the data folder."""
        given = Path(self.path).expanduser().absolute()
        return folder / self.path if folder and not given.exists() and (folder / self.path).exists() else given

    def _check_columns(self, table: Any) -> None:
        known = [str(name) for name in table.columns]
        if not len(table):
            raise DataError(f"{self.path} holds no rows, only the columns {', '.join(known)}")
        if len(known) == 1 and ";" in known[0]:
            raise DataError(f"{self.path} is separated by semicolons; write it with commas, or as .tsv or .parquet")
        if (index := "Unnamed: 0") in known and index not in self.drop:
            raise DataError(
                f"{self.path} has a column without a name, as pandas writes its index; add drop: ['{index}']"
            )
        for name in (self.target, *self.drop):
            if name not in known:
                raise DataError(f"{self.path} has no column {name!r}; {suggest(name, known)}")
