"""A data set in memory: its training samples, its test samples, and what the numbers mean."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError
from tacit.data.positive import guess_positive

if TYPE_CHECKING:
    import pandas as pd

    from tacit.data.encoding import Encoding, Task
    from tacit.data.groupings import Grouping

CHECKED = 65_536  # samples at a time, since a check of all of them would hold the data twice
GROUPS = 10  # of a regression's outcomes, for splits that divide samples by label


@dataclass(frozen=True)
class Dataset:
    """Features as floats, and what to predict.

    That is labels from 0 or, in a regression, centred and scaled numbers.
    """

    name: str
    x: Tensor = field(repr=False)  # (n, ...)
    y: Tensor = field(repr=False)  # (n,)
    test_x: Tensor = field(repr=False)
    test_y: Tensor = field(repr=False)
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # the features' names, where they have any
    centre: Tensor | None = field(default=None, repr=False)  # was subtracted from the features,
    spread: Tensor | None = field(default=None, repr=False)  # which were then divided by this
    task: Task = "classification"
    target_centre: float = 0.0  # was subtracted from a regression's outcomes,
    target_spread: float = 1.0  # which were then divided by this
    owner: Tensor | None = field(default=None, repr=False)  # (n,), each training sample's, from 0
    owners: tuple[str, ...] = ()  # the owners' names
    client: str | None = None  # the column that names the owners
    # (n,), whom each training sample is of: a client's own test has all of them or none
    person: Tensor | None = field(default=None, repr=False)
    encoding: Encoding | None = field(default=None, repr=False)  # how a table became x
    # the table's rows, training rows first
    frame: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    left_out: str | None = None  # the owner whose rows are the test set, and who does not train
    positive: int | None = None  # the class that counts as positive, where two were told apart
    groupings: tuple[Grouping, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_samples("training", self.x, self.y)
        self._check_samples("test", self.test_x, self.test_y)
        if self.positive is not None and (self.classes != 2 or self.positive not in (0, 1)):
            got = f"{self.positive} of {self.classes} classes"
            raise DataError(f"{self.name}: expected the positive class, 0 or 1 of two, got {got}")
        if self.owner is None:
            return
        if len(self.owner) != len(self.y) or not self.owners:
            counts = f"{len(self.owner)} for {len(self.y)}"
            raise DataError(f"{self.name}: expected an owner of every sample, got {counts}")

    @property
    def classes(self) -> int:
        """How many classes there are; none in a regression."""
        return len(self.labels)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives per sample."""
        return self.classes or 1

    @cached_property
    def positive_class(self) -> int | None:
        """The code of the positive one of two classes: as named, or as the labels suggest."""
        if self.classes != 2 or self.positive is not None:
            return self.positive
        return guess_positive(self.labels, self.y)

    @cached_property
    def groups(self) -> Tensor:
        """What splits divide by. # (n,)

        That is the labels or, in a regression, the tenth of all outcomes that each outcome is in.
        """
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
        sections = np.searchsorted(edges, y, side="right")
        _, codes = np.unique(sections, return_inverse=True)  # without empty sections
        names: list[str] = []
        for code in range(codes.max() + 1):
            outcomes = y[codes == code] * self.target_spread + self.target_centre
            names.append(f"{outcomes.min():.4g} to {outcomes.max():.4g}")
        return to_labels(codes), tuple(names)

    def fingerprint(self) -> str:
        """A digest that tells this data from any other."""
        digest = hashlib.sha256(repr(self.labels).encode())
        if self.task == "regression":
            digest.update(repr((self.target_centre, self.target_spread)).encode())
        tensors = [self.x, self.y, self.test_x, self.test_y]
        if self.owner is not None:
            tensors.append(self.owner)
        for tensor in tensors:
            digest.update(repr(tensor.shape).encode())
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def _check_samples(self, subset: str, x: Tensor, y: Tensor) -> None:
        is_shaped = x.shape[1:] == self.x.shape[1:] and y.dim() == 1
        if not is_shaped or not x.is_floating_point():
            shapes = f"x {x.dtype} {tuple(x.shape)}, y {tuple(y.shape)}"
            wanted = "float features of one shape and a row of labels"
            raise DataError(f"{self.name}: expected {wanted}, got {shapes}")
        if len(x) != len(y) or not len(x):
            counts = f"{len(y)} for {len(x)} ({subset})"
            raise DataError(f"{self.name}: expected as many labels as samples, got {counts}")
        if self.task == "regression":
            self._check_numbers(subset, y)
        else:
            self._check_labels(subset, y)
        for samples in x.split(CHECKED):
            if not torch.isfinite(samples).all():
                complaint = f"the {subset} features hold missing or infinite values"
                raise DataError(f"{self.name}: {complaint}; fill or drop them")

    def _check_labels(self, subset: str, y: Tensor) -> None:
        if y.dtype != torch.int64 or y.min() < 0 or y.max() >= self.classes:
            wanted = f"{subset} labels from 0 to {self.classes - 1}"
            span = f"{y.min().item()} to {y.max().item()}"
            raise DataError(f"{self.name}: expected {wanted}, got {span}")

    def _check_numbers(self, subset: str, y: Tensor) -> None:
        if self.labels or y.dtype != self.x.dtype or not torch.isfinite(y).all():
            wanted = f"finite numbers of type {self.x.dtype}, as the features are, and no labels"
            raise DataError(f"{self.name}: expected {wanted} to predict, got {y.dtype} ({subset})")
        if subset == "test" and len(y.unique()) < 2:
            complaint = "all test outcomes are equal, so R2 means nothing"
            raise DataError(f"{self.name}: {complaint}; use a larger test_share")


def to_labels(labels: NDArray[Any]) -> Tensor:
    """Labels as torch wants them."""
    return torch.from_numpy(labels.astype(np.int64))
