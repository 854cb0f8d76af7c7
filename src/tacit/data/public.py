"""Public data, seen as the study's own: same columns, same levels, same units, same classes."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.errors import DataError
from tacit.data.dataset import Dataset


def align(public: Dataset, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """All samples of a public data set, with features and outcomes as `dataset` has them."""
    if public.task != dataset.task:
        raise DataError(
            f"the public data {public.name} are for {public.task}, the study's for {dataset.task}"
        )
    if strange := [name for name in public.labels if name not in dataset.labels]:
        known = ", ".join(dataset.labels[:10])
        raise DataError(
            f"the public data {public.name} have a class {strange[0]!r}; the study's are {known}"
        )
    x = (
        _encoded(public, dataset)
        if dataset.encoding and public.frame is not None
        else _scaled(public, dataset)
    )
    if x.shape[1:] != dataset.x.shape[1:]:
        shapes = tuple(x.shape[1:]), tuple(dataset.x.shape[1:])
        raise DataError(
            f"the public data {public.name} have samples of shape {shapes[0]}, the study's {shapes[1]}"
        )
    return x.to(dataset.x.dtype), _outcomes(public, dataset)


def _encoded(public: Dataset, dataset: Dataset) -> Tensor:
    """A table's rows by the study's own encoding."""
    assert dataset.encoding is not None
    assert public.frame is not None
    try:
        return dataset.encoding.apply(public.frame)
    except DataError as error:
        raise DataError(f"the public data {public.name} do not fit the study's: {error}") from None


def _scaled(public: Dataset, dataset: Dataset) -> Tensor:
    """Numbers in the study's units, their columns in its order."""
    x = torch.cat([public.x, public.test_x])
    if public.centre is not None and public.spread is not None:  # as it was in the file
        x = x * public.spread + public.centre
    if public.columns and dataset.columns:
        if set(public.columns) != set(dataset.columns):
            odd = sorted(set(public.columns) ^ set(dataset.columns))
            raise DataError(
                f"the public data {public.name} and the study's differ in columns: {', '.join(odd)}"
            )
        x = x[:, [public.columns.index(name) for name in dataset.columns]]
    if (
        x.shape[1:] == dataset.x.shape[1:]
        and dataset.centre is not None
        and dataset.spread is not None
    ):
        x = (x - dataset.centre) / dataset.spread
    return x


def _outcomes(public: Dataset, dataset: Dataset) -> Tensor:
    y = torch.cat([public.y, public.test_y])
    if dataset.task == "regression":
        there = y.double() * public.target_spread + public.target_centre
        return ((there - dataset.target_centre) / dataset.target_spread).to(dataset.y.dtype)
    return torch.tensor([dataset.labels.index(name) for name in public.labels])[y]
