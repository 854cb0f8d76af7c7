"""Data frames and arrays that are given as Python objects.

A study's file cannot hold them, so it holds a text that names them, with a digest of what they
hold. They are kept here, as they were, for as long as Python runs.

>>> name = remember(pd.DataFrame({"age": [30, 50], "ill": ["no", "yes"]}))
>>> name.startswith("frame#"), recall(name).shape
(True, (2, 2))
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tacit.core.errors import DataError, StudyError
from tacit.data.features import hash_column

SamplePair = tuple[NDArray[Any], NDArray[Any]]  # samples, and what to predict of each
FRAME = "frame#"
ARRAYS = "arrays#"
TITLE = "data frame"
FRAMES: dict[str, pd.DataFrame] = {}  # by the text that names it in a study's file
PAIRS: dict[str, SamplePair] = {}


def is_data(value: Any) -> bool:
    """Whether this holds samples or outcomes: a data frame or one of its columns, an array, a
    tensor."""
    return isinstance(value, pd.DataFrame | pd.Series | np.ndarray | torch.Tensor)


def is_frame_name(text: str) -> bool:
    """Whether a table's path is not that of a file."""
    return text.startswith(FRAME)


def remember(frame: pd.DataFrame) -> str:
    """The text that names this data frame, with what it holds now."""
    traits = [repr([str(name) for name in frame.columns]).encode()]
    traits += [repr(frame.dtypes.to_list()).encode()]
    for position in range(frame.shape[1]):
        traits.append(hash_column(frame.iloc[:, position]).tobytes())
    name = FRAME + _digest(traits)
    if name not in FRAMES:
        FRAMES[name] = frame.reset_index(drop=True).copy()
    return name


def recall(name: str) -> pd.DataFrame:
    """The data frame of that name, if this session has it."""
    if name not in FRAMES:
        raise _unknown(name, "data frame")
    return FRAMES[name]


def remember_pair(x: Any, y: Any) -> str:
    """The text that names these samples, such as pictures, and what to predict of each."""
    arrays = (_as_array(x).copy(), _as_array(y).copy())
    traits = [repr([(array.shape, array.dtype) for array in arrays]).encode()]
    traits += [np.ascontiguousarray(array).tobytes() for array in arrays]
    name = ARRAYS + _digest(traits)
    PAIRS[name] = arrays
    return name


def recall_pair(name: str) -> SamplePair:
    """The arrays of that name, if this session has them."""
    if name not in PAIRS:
        raise _unknown(name, "arrays")
    return PAIRS[name]


def joined(x: Any, y: Any, setting: str) -> tuple[pd.DataFrame, str]:
    """A table of features and the column to predict, and that column's name."""
    if isinstance(y, pd.DataFrame) and y.shape[1] != 1:
        raise StudyError(f"{setting}: expected one column to predict, y has {y.shape[1]}")
    outcomes = y.iloc[:, 0] if isinstance(y, pd.DataFrame) else y
    target = str(getattr(outcomes, "name", None) or "target")
    if isinstance(x, pd.DataFrame):
        frame = x.rename(columns=str)
    else:
        samples = _as_array(x)
        frame = pd.DataFrame(samples, columns=[f"x{k}" for k in range(samples.shape[1])])
    if target in frame.columns:
        raise StudyError(f"{setting}: x has a column {target} too, which y is called; rename one")
    values = outcomes.array if isinstance(outcomes, pd.Series) else _as_array(outcomes)
    return frame.reset_index(drop=True).assign(**{target: values}), target


def _as_array(value: Any) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.dtype == torch.bfloat16 or value.is_meta:
            raise StudyError(
                f"expected a dense tensor of numbers, got {value.dtype}, {value.layout} on"
                f" {value.device}; turn it into a numpy array first"
            )
        return value.detach().cpu().numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise StudyError("expected an array, got a masked one; fill it: x.filled(numpy.nan)")
    array = np.asarray(value)
    if array.dtype.kind in "cSV" or (array.dtype.kind == "u" and array.dtype.itemsize == 8):
        raise StudyError(
            f"expected an array of numbers or text, got {array.dtype}; convert it first, such as"
            " with astype"
        )
    return array


def _digest(traits: list[bytes]) -> str:
    digest = hashlib.sha256()
    for trait in traits:
        digest.update(trait)
    return digest.hexdigest()[:12]


def _unknown(name: str, kind: str) -> DataError:
    return DataError(
        f"the {kind} {name} was given as a Python object, and is not known here; pass the same"
        " data to a Study first, or save the data as a file and name that"
    )
