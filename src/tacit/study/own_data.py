"""Data sets that are given as Python objects, by the names that a study's file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tacit.core.errors import StudyError, shown
from tacit.data.own_frames import is_data, joined, remember, remember_pair

FORM = 'write {"name": "table", "path": frame, "target": column}'


def name_data(value: Any, setting: str) -> Any:
    """The setting with a name in place of every data frame and pair of arrays."""
    if isinstance(value, pd.DataFrame):
        columns = ", ".join(str(name) for name in list(value.columns)[:10])
        raise StudyError(
            f"{setting}: which column of the data frame is to be predicted? {FORM}; its columns are"
            f" {columns}"
        )
    if is_data(value):
        raise StudyError(f"{setting}: expected what is to be predicted too; write (x, y)")
    if isinstance(value, list | tuple) and any(is_data(item) for item in value):
        return _name_pair(value, setting)
    if isinstance(value, list | tuple):
        return [name_data(item, setting) for item in value]
    if isinstance(value, Mapping):
        return {key: _name_in_table(key, item, setting) for key, item in value.items()}
    return value


def _name_in_table(key: str, value: Any, setting: str) -> Any:
    """A table's setting with names in place of data frames; they are its path and its test."""
    if isinstance(value, pd.DataFrame):
        if key not in ("path", "test"):
            raise StudyError(f"{setting}: {key} is a data frame; {FORM}")
        return remember(value)
    if is_data(value) and key in ("path", "target", "test"):
        raise StudyError(f"{setting}: {key} is an array; give arrays as (x, y), without a name")
    if key == "grid":
        return name_data(value, setting)
    if key == "test" and isinstance(value, Mapping):
        return {name: _name_in_table("path", item, setting) for name, item in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(item, pd.DataFrame) for item in value):
        return [_name_in_table(key, item, setting) for item in value]
    return value


def _check_outcomes(y: Any, setting: str) -> None:
    """Refuses what is no row of outcomes."""
    outcomes = y
    if isinstance(y, list | tuple):
        outcomes = np.array(y, dtype=object)
    if not is_data(outcomes):
        raise StudyError(
            f"{setting}: y needs an outcome for each sample, as an array or a column has, got"
            f" {shown(y)}"
        )
    is_row = len(outcomes.shape) == 1 or isinstance(y, pd.DataFrame)
    if not is_row:
        raise StudyError(
            f"{setting}: y needs one outcome for each sample, got the shape {tuple(outcomes.shape)}"
        )
    cells = outcomes.to_numpy().ravel() if isinstance(y, pd.DataFrame) else outcomes
    if str(getattr(cells, "dtype", "")) == "object" and any(map(_is_nested, cells)):
        raise StudyError(f"{setting}: y holds lists; give one outcome for each sample")


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | dict | set | np.ndarray)


def _name_pair(pair: list[Any] | tuple[Any, ...], setting: str) -> dict[str, str]:
    """Samples and what to predict of each: a table or, of more dimensions, arrays as they are."""
    if isinstance(pair, list) or len(pair) != 2:
        raise StudyError(f"{setting}: expected a pair of samples and outcomes; write (x, y)")
    x, y = pair
    if not is_data(x) or len(x.shape) < 2:
        raise StudyError(
            f"{setting}: x needs a row for each sample, as a data frame or an array has"
        )
    _check_outcomes(y, setting)
    if len(x) != len(y):
        raise StudyError(
            f"{setting}: x has {len(x)} rows and y {len(y)}; they must belong together"
        )
    if len(x.shape) > 2:
        return {"name": "arrays", "path": remember_pair(x, y)}
    frame, target = joined(x, y, setting)
    return {"name": "table", "path": remember(frame), "target": target}
