"""The rows that are held out to test on.

They are the same whatever the study's seed, so that seeds can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.core.arrays import Index
from tacit.core.errors import DataError
from tacit.data.dataset import Dataset, to_labels

TEST_SEED = 20260101


def hold_out(
    name: str,
    rows: int,
    share: float,
    *,
    codes: NDArray[Any] | None = None,
    owner: NDArray[Any] | None = None,
) -> tuple[Index, Index]:
    """(train, test): a share of every class or, where there are no classes, of all rows.

    Every owner keeps a row to train on.
    """
    check_share(name, share)
    if rows < 3:
        raise DataError(
            f"{name}: expected three rows or more, to learn from and to test on, got {rows}"
        )
    groups = np.zeros(rows, int) if codes is None else codes
    fewest = 2 if codes is None else 1  # the variance of outcomes needs two
    test = _draw_test(groups, share, fewest)
    train = np.setdiff1d(np.arange(rows), test)
    if owner is not None:  # an owner all of whose rows would be tests keeps them to train on
        test = test[np.isin(owner[test], owner[train])]
        train = np.setdiff1d(np.arange(rows), test)
        if len(test) < fewest:
            raise DataError(
                f"{name}: too few rows are left to test on, since every client keeps a row to"
                " learn from; more clients need two rows or more"
            )
    return train, test


def check_share(name: str, share: float) -> None:
    """Refuses a share of the rows that leaves none to train or to test on."""
    if not 0 < share < 1:
        raise DataError(f"{name}: expected a test share above 0 and below 1, got {share}")


def _draw_test(groups: NDArray[Any], share: float, fewest: int) -> Index:
    """A share of the rows of every group, but not all of them, in ascending order."""
    rng = np.random.default_rng(TEST_SEED)
    drawn: list[Index] = []
    for group in range(groups.max() + 1):
        shuffled = rng.permutation(np.flatnonzero(groups == group))
        count = max(fewest, round(share * len(shuffled)))
        count = min(count, len(shuffled) - 1)
        drawn.append(shuffled[:count])
    return np.sort(np.concatenate(drawn))


def encode_labels(name: str, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The classes in order, and each row's position among them.

    Each class needs a row to learn from and one to test on.
    """
    classes, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise DataError(f"{name}: expected two classes or more, got {classes.tolist()}")
    if sizes.min() < 2:
        lonely = classes[sizes.argmin()]
        hint = ""
        if len(classes) > len(y) / 4 or y.dtype.kind in "iuf":
            hint = "; if it is a measurement, set task: regression"
        raise DataError(
            f"{name}: class {lonely!s} has one sample and needs two,"
            f" to learn from and to test on{hint}"
        )
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
    """A Dataset from arrays: a share becomes the test set.

    Features are standardised by the training set's moments. Where y holds floats and there are no
    labels, it is a regression.
    """
    _check_arrays(name, x, y)
    details: dict[str, Any] = {}
    if y.dtype.kind == "f" and labels is None:
        train, test = hold_out(name, len(y), share)
        outcomes, scale = standardise_target(name, y, train)
        details |= {"task": "regression", **scale}
    else:
        classes, codes = encode_labels(name, y)
        train, test = hold_out(name, len(y), share, codes=codes)
        outcomes = to_labels(codes)
        details["labels"] = tuple(labels or [str(label) for label in classes])
    with np.errstate(over="ignore"):  # the Dataset refuses numbers that become infinite here
        features = np.asarray(x, dtype=np.float32)
    if standardise:
        centre, spread = moments(features[train])
        features = (features - centre) / spread
        details |= {"centre": torch.from_numpy(centre), "spread": torch.from_numpy(spread)}
    samples = torch.from_numpy(features)
    return Dataset(name, samples[train], outcomes[train], samples[test], outcomes[test], **details)


def _check_arrays(name: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    is_shaped = len(x) == len(y) and y.ndim == 1 and x.ndim >= 2
    if not is_shaped or x.dtype.kind not in "biuf":
        shapes = f"x {x.dtype} {x.shape}, y {y.shape}"
        wanted = "numbers, one row per sample, and as many labels"
        raise DataError(f"{name}: expected {wanted}; got {shapes}")


def standardise_target(
    name: str, y: NDArray[Any], train: Index
) -> tuple[torch.Tensor, dict[str, float]]:
    """A regression's outcomes, standardised by the training rows, and the numbers that undo it."""
    values = y.astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(
            f"{name}: the outcomes hold missing or infinite numbers; fix or drop these rows"
        )
    centre, spread = (float(moment) for moment in moments(values[train]))
    standardised = ((values - centre) / spread).astype(np.float32)
    return torch.from_numpy(standardised), {"target_centre": centre, "target_spread": spread}


def moments(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of the rows; a deviation of zero counts as one."""
    deviation = values.std(0)
    spread = np.where(deviation > 0, deviation, 1)
    return values.mean(0), spread.astype(values.dtype)
