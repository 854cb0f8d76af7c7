"""Which rows are kept to test on: the same whatever the study's seed, so that seeds can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.dataset import Dataset, to_labels

TEST_SEED = 20260101
Index = NDArray[np.int64]


def hold_out(
    name: str,
    rows: int,
    share: float,
    *,
    codes: NDArray[Any] | None = None,
    owner: NDArray[Any] | None = None,
) -> tuple[Index, Index]:
    """(train, test): a share of every class, or of all rows where there are no classes; no owner is left without."""
    if not 0 < share < 1:
        raise DataError(f"{name}: expected a test share above 0 and below 1, got {share}")
    if rows < 3:
        raise DataError(
            f"{name}: expected three rows or more, to learn from and to test on, got {rows}"
        )
    rng = np.random.default_rng(TEST_SEED)
    groups = np.zeros(rows, int) if codes is None else codes
    shuffled = [rng.permutation(np.flatnonzero(groups == code)) for code in range(groups.max() + 1)]
    fewest = 1 if codes is not None else 2  # of two outcomes at least can a variance be told
    taken = [
        group[: min(max(fewest, round(share * len(group))), len(group) - 1)] for group in shuffled
    ]
    test = np.sort(np.concatenate(taken))
    train = np.setdiff1d(np.arange(rows), test)
    if owner is not None:  # one whose rows would all be tests keeps them
        test = test[np.isin(owner[test], owner[train])]
        train = np.setdiff1d(np.arange(rows), test)
    return train, test


def encode_labels(name: str, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The classes in order and each row's place among them; each class needs a row to learn from and one to test on."""
    classes, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise DataError(f"{name}: expected two classes or more, got {classes.tolist()}")
    if sizes.min() < 2:
        lonely = f"class {classes[sizes.argmin()]!s} has one sample and needs two, to learn from and to test on"
        number = (
            "; if it is a measurement, set task: regression" if len(classes) > len(y) / 4 else ""
        )
        raise DataError(f"{name}: {lonely}{number}")
    return classes, codes


def split_off_test(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    labels: Sequence[str] | None = None,
    *,
    share: float = 0.2,
    standardise: bool = True,
) -> Dataset:
    """A Dataset from arrays: a share becomes the test set; standardising uses the training set's moments.

    Where y holds floats and no labels are given, it is a regression.
    """
    if len(x) != len(y) or y.ndim != 1 or x.ndim < 2 or x.dtype.kind not in "biuf":
        raise DataError(
            f"{name}: expected numbers, one row per sample, and as many labels; got x {x.dtype} {x.shape}, y {y.shape}"
        )
    regression = y.dtype.kind == "f" and labels is None
    classes, codes = (None, None) if regression else encode_labels(name, y)
    train, test = hold_out(name, len(y), share, codes=codes)
    with np.errstate(
        over="ignore"
    ):  # what is too large becomes infinite, and is refused by the Dataset
        features = np.asarray(x, dtype=np.float32)
    about: dict[str, Any] = {}
    if standardise:
        centre, spread = moments(features[train])
        features = (features - centre) / spread
        about |= {"centre": torch.from_numpy(centre), "spread": torch.from_numpy(spread)}
    if codes is None or classes is None:
        outcomes, scale = standardise_target(name, y, train)
        about |= {"task": "regression", **scale}
    else:
        outcomes, about["labels"] = (
            to_labels(codes),
            tuple(labels or [str(label) for label in classes]),
        )
    samples = torch.from_numpy(features)
    return Dataset(name, samples[train], outcomes[train], samples[test], outcomes[test], **about)


def standardise_target(
    name: str, y: NDArray[Any], train: Index
) -> tuple[torch.Tensor, dict[str, float]]:
    """A regression's outcomes in units of the training rows' deviation, and what undoes it."""
    values = y.astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(
            f"{name}: the outcomes hold missing or infinite numbers; mend or drop these rows"
        )
    centre, spread = (float(moment) for moment in moments(values[train]))
    scale = {"target_centre": centre, "target_spread": spread}
    return torch.from_numpy(((values - centre) / spread).astype(np.float32)), scale


def moments(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of the rows; a deviation of zero counts as one."""
    spread = values.std(0)
    return values.mean(0), np.where(spread > 0, spread, 1).astype(values.dtype)
