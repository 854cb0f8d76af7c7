"""Dicts of rows, and objects whose float fields are columns.

Client hooks and optimisers act on K rows at once, and the rows may belong to different runs with
different hyper-parameters. So they see an object of their own class whose float fields are (K, 1)
columns, even for one row, so that the bits agree. Fields of any other type are equal in all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from tacit.core.fields import field_types

Rows = dict[str, Tensor]
T = TypeVar("T")


def columns(objects: Sequence[Any], owner: type[T], like: Tensor) -> T:
    """One `owner` for K rows, from one object per row.

    Its float fields are (K, 1) columns of `like`'s type.
    """
    values: dict[str, Any] = {}
    for name, annotation in field_types(owner).items():
        if annotation is float:
            numbers = [getattr(item, name) for item in objects]
            values[name] = torch.tensor(numbers, dtype=like.dtype, device=like.device)[:, None]
        else:
            values[name] = getattr(objects[0], name)
    return _construct(owner, values)


def batch_key(item: Any, owner: type) -> tuple[Any, ...]:
    """Objects with equal keys can share one `columns` view."""
    key: list[Any] = [owner]
    for name, annotation in field_types(owner).items():
        if annotation is not float:
            key.append(getattr(item, name))
    return tuple(key)


def head(tree: T, count: int) -> T:
    """The first `count` rows of a tensor, a dict of rows, or a dataclass that holds either."""
    return pick(tree, slice(0, count))


def pick(tree: T, rows: Any) -> T:
    """The rows (a slice or an index tensor) of all tensors in a tree.

    A tree is a tensor, a dict of trees or a dataclass of trees; anything else in it stays as it is.
    """
    if isinstance(tree, Tensor):
        return tree[rows]  # type: ignore[return-value]
    if isinstance(tree, dict):
        return {name: pick(value, rows) for name, value in tree.items()}  # type: ignore[return-value]
    if is_dataclass(tree):
        values = {field.name: pick(getattr(tree, field.name), rows) for field in fields(tree)}
        return _construct(type(tree), values)
    return tree


def join(trees: Sequence[Any]) -> Any:
    """Undoes `pick`: stacks blocks of rows, in order."""
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(trees))
    if isinstance(first, dict):
        return {name: join([tree[name] for tree in trees]) for name in first}
    if is_dataclass(first):
        values: dict[str, Any] = {}
        for field in fields(first):
            values[field.name] = join([getattr(tree, field.name) for tree in trees])
        return _construct(type(first), values)
    return first


def _construct(cls: type[T], values: dict[str, Any]) -> T:
    """A dataclass with these fields, made without `__post_init__`, which checks plain numbers."""
    instance = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def replaced(item: T, **values: Any) -> T:
    """A view with other columns; `dataclasses.replace` would check them as plain numbers."""
    return _construct(type(item), {**vars(item), **values})


def count_bytes(rows: Rows) -> int:
    """What these rows weigh on the wire."""
    return sum(value.numel() * value.element_size() for value in rows.values())
