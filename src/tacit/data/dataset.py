"""A data set in memory: what is learnt from, what is tested on, and what the numbers mean."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from tacit.data.encoding import Encoding, Task

CHECKED = 65_536  # samples at a time, since a check of all of them would hold the data twice
GROUPS = 10  # of a regression's outcomes, for what divides samples by label


@dataclass(frozen=True)
class Dataset:
    """Features as floats, and what to predict: labels from 0, or, in a regression, centred and scaled numbers."""

    name: str
    x: Tensor = field(repr=False)  # (n, ...)
    y: Tensor = field(repr=False)  # (n,)
    test_x: Tensor = field(repr=False)
    test_y: Tensor = field(repr=False)
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # the features' names, where they have any
    centre: Tensor | None = field(
        default=None, repr=False
    )  # what was subtracted from them, and then divided by
    spread: Tensor | None = field(default=None, repr=False)
    task: Task = "classification"
    target_centre: float = (
        0.0  # what was subtracted from a regression's outcomes, and then divided by
    )
    target_spread: float = 1.0
    owner: Tensor | None = field(
        default=None, repr=False
    )  # (n,), whose each training sample is, from 0
    owners: tuple[str, ...] = ()  # their names
    client: str | None = None  # the column that says so
    encoding: Encoding | None = field(default=None, repr=False)  # how a table became x
    frame: pd.DataFrame | None = field(
        default=None, repr=False, compare=False
    )  # its rows, training rows first

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.x, self.y), ("test", self.test_x, self.test_y)):
            if y.dim() != 1 or not x.is_floating_point() or x.shape[1:] != self.x.shape[1:]:
                shapes = f"x {x.dtype} {tuple(x.shape)}, y {tuple(y.shape)}"
                raise DataError(
                    f"{self.name}: expected float features of one shape and a row of labels, got {shapes}"
                )
            if len(x) != len(y) or not len(x):
                raise DataError(
                    f"{self.name}: expected as many labels as samples, got {len(y)} for {len(x)} ({part})"
                )
            (self._check_numbers if self.task == "regression" else self._check_labels)(part, y)
            if not all(bool(torch.isfinite(some).all()) for some in x.split(CHECKED)):
                raise DataError(
                    f"{self.name}: the {part} features hold missing or infinite values; fill or drop them"
                )
        if self.owner is not None and (len(self.owner) != len(self.y) or not self.owners):
            raise DataError(
                f"{self.name}: expected an owner of every sample, got {len(self.owner)} for {len(self.y)}"
            )

    @property
    def classes(self) -> int:
        """How many classes there are; none in a regression."""
        return len(self.labels)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives per sample."""
        return self.classes or 1

    @property
    def score(self) -> Literal["accuracy", "r2"]:
        """What a model is judged by."""
        return "r2" if self.task == "regression" else "accuracy"

    @cached_property
    def groups(self) -> Tensor:
        """What splits divide by: the labels, or the tenth of all outcomes in which a regression's lies. # (n,)"""
        return self._grouped[0]

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The labels, or the span of each group's outcomes."""
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[Tensor, tuple[str, ...]]:
        if self.task != "regression":
            return self.y, self.labels
        y = self.y.double().numpy()
        edges = np.unique(np.quantile(y, np.arange(1, GROUPS) / GROUPS))
        codes = np.unique(np.searchsorted(edges, y, side="right"), return_inverse=True)[1]
        spans = [
            y[codes == code] * self.target_spread + self.target_centre
            for code in range(codes.max() + 1)
        ]
        return to_labels(codes), tuple(f"{span.min():.4g} to {span.max():.4g}" for span in spans)

    def fingerprint(self) -> str:
        """Tells this data from any other."""
        digest = hashlib.sha256(repr(self.labels).encode())
        if self.task == "regression":
            digest.update(repr((self.target_centre, self.target_spread)).encode())
        owner = () if self.owner is None else (self.owner,)
        for part in (self.x, self.y, self.test_x, self.test_y, *owner):
            digest.update(repr(part.shape).encode())
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()

    def _check_labels(self, part: str, y: Tensor) -> None:
        if y.dtype != torch.int64 or y.min() < 0 or y.max() >= self.classes:
            span = f"{y.min().item()} to {y.max().item()}"
            raise DataError(
                f"{self.name}: expected {part} labels from 0 to {self.classes - 1}, got {span}"
            )

    def _check_numbers(self, part: str, y: Tensor) -> None:
        if self.labels or y.dtype != self.x.dtype or not torch.isfinite(y).all():
            wanted = f"finite numbers of type {self.x.dtype}, as the features are, and no labels"
            raise DataError(f"{self.name}: expected {wanted} to predict, got {y.dtype} ({part})")
        if part == "test" and len(y.unique()) < 2:
            raise DataError(
                f"{self.name}: all test outcomes are equal, so R2 means nothing; use a larger test_share"
            )


def to_labels(labels: NDArray[Any]) -> Tensor:
    """Labels as torch wants them."""
    return torch.from_numpy(labels.astype(np.int64))
