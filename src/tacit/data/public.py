"""Public data, seen as the study's own: same columns in the same order, same scale, same classes."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.errors import DataError
from tacit.data.datasets import Dataset


def align(public: Dataset, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """All samples of a public data set, with features and labels as `dataset` has them."""
    if strange := [name for name in public.labels if name not in dataset.labels]:
        known = ", ".join(dataset.labels[:10])
        raise DataError(f"the public data {public.name} have a class {strange[0]!r}; the study's are {known}")
    x, y = torch.cat([public.x, public.test_x]), torch.cat([public.y, public.test_y])
    if public.centre is not None and public.spread is not None:  # as it was in the file
        x = x * public.spread + public.centre
    if public.columns and dataset.columns:
        if set(public.columns) != set(dataset.columns):
            odd = sorted(set(public.columns) ^ set(dataset.columns))
            raise DataError(f"the public data {public.name} and the study's differ in columns: {', '.join(odd)}")
        x = x[:, [public.columns.index(name) for name in dataset.columns]]
    if x.shape[1:] != dataset.x.shape[1:]:
        shapes = tuple(x.shape[1:]), tuple(dataset.x.shape[1:])
        raise DataError(f"the public data {public.name} have samples of shape {shapes[0]}, the study's {shapes[1]}")
    if dataset.centre is not None and dataset.spread is not None:
        x = (x - dataset.centre) / dataset.spread
    places = torch.tensor([dataset.labels.index(name) for name in public.labels])
    return x.to(dataset.x.dtype), places[y]
