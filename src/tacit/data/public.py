"""Public data in the study's own terms: the same columns, levels, units and classes."""

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
    for label in public.labels:
        if label not in dataset.labels:
            labels = ", ".join(dataset.labels[:10])
            raise DataError(
                f"the public data {public.name} have a class {label!r}; the study's are {labels}"
            )
    if dataset.encoding and public.frame is not None:
        x = _encoded(public, dataset)
    else:
        x = _scaled(public, dataset)
    shape = tuple(x.shape[1:])
    wanted = tuple(dataset.x.shape[1:])
    if shape != wanted:
        raise DataError(
            f"the public data {public.name} have samples of shape {shape}, the study's {wanted}"
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
        order = [public.columns.index(name) for name in dataset.columns]
        x = x[:, order]
    if x.shape[1:] != dataset.x.shape[1:]:
        return x
    if dataset.centre is not None and dataset.spread is not None:
        x = (x - dataset.centre) / dataset.spread
    return x


def _outcomes(public: Dataset, dataset: Dataset) -> Tensor:
    y = torch.cat([public.y, public.test_y])
    if dataset.task == "regression":
        outcomes = y.double() * public.target_spread + public.target_centre  # as in the file
        scaled = (outcomes - dataset.target_centre) / dataset.target_spread
        return scaled.to(dataset.y.dtype)
    codes = [dataset.labels.index(label) for label in public.labels]
    return torch.tensor(codes)[y]
