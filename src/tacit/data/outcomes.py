"""What each row of a table is to be predicted as, and whose it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.data.dataset import to_labels
from tacit.data.encoding import LabelType, Target
from tacit.data.features import as_numbers, as_text
from tacit.data.holdout import encode_labels, standardise_target

FEW = 20  # a target with so many different whole numbers, or fewer, is taken for classes


def drop_without_outcome(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, str | None]:
    """The rows that have an outcome, and a note on those that have none, if there are any."""
    has_outcome = np.array([text is not None for text in as_text(table[target])])
    if has_outcome.all():
        return table, None
    if not has_outcome.any():
        raise DataError(f"no row has a {target}; check the column, or name another target")
    dropped = int((~has_outcome).sum())
    rows = f"{dropped} rows" if dropped > 1 else "1 row"
    verb = "were" if dropped > 1 else "was"
    return table[has_outcome], f"{rows} without {target} {verb} left out"


def read_target(values: pd.Series[Any], task: str) -> tuple[Target, NDArray[Any]]:
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


def explain_guess(values: pd.Series[Any], target: Target, task: str) -> str | None:
    """Says what `task: auto` took a numeric target for; None where it did not guess."""
    if task != "auto" or values.dtype.kind not in "iuf":
        return None
    if not target.labels:
        remedy = "if its values are classes, set task: classification"
        return f"{target.name} is taken for a measurement; {remedy}"
    count = len(target.labels)
    remedy = "if they are measurements, set task: regression"
    return f"{target.name} has {count} different whole numbers and is taken for classes; {remedy}"


def scale_outcomes(target: Target, outcomes: NDArray[Any], train: Index) -> tuple[Target, Tensor]:
    """The outcomes as a model learns them: labels, or numbers that are standardised."""
    if target.labels:
        return target, to_labels(outcomes)
    y, scale = standardise_target(target.name, outcomes, train)
    scaled = replace(target, centre=scale["target_centre"], spread=scale["target_spread"])
    return scaled, y


def number_owners(column: str, values: pd.Series[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
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


def read_more_outcomes(target: Target, values: pd.Series[Any]) -> NDArray[Any]:
    """The outcomes of further rows, by a target that other rows were read as."""
    if not target.labels:
        return as_numbers(target.name, values)
    codes = {label: code for code, label in enumerate(target.labels)}
    texts = as_text(values)
    for text in texts:
        if text not in codes:
            raise DataError(
                f"no training row has the {target.name} {text!r} (there are"
                f" {', '.join(target.labels[:10])}), so it cannot be tested on; fix these rows,"
                " or leave them out"
            )
    return np.array([codes[str(text)] for text in texts])
