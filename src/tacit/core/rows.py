"""Dicts of rows, and objects whose float fields are columns.

Client hooks and optimisers act on K rows at once, and the rows may belong to different runs with different
hyper-parameters. So they see an object of their own class whose float fields are (K, 1) columns, even for one row, so
that the bits agree. Fields of any other type are equal in all rows.
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
    """One `owner` for K rows, from one object per row: its float fields are (K, 1) columns of `like`'s type."""
    values: dict[str, Any] = {}
    for name, annotation in field_types(owner).items():
        given = [getattr(item, name) for item in objects]
        values[name] = (
            torch.tensor(given, dtype=like.dtype, device=like.device)[:, None]
            if annotation is float
            else given[0]
        )
    made: T = _rebuilt(owner, values)
    return made


def batch_key(item: Any, owner: type) -> tuple[Any, ...]:
    """Objects with equal keys can share one `columns` view."""
    return (
        owner,
        *(getattr(item, name) for name, kind in field_types(owner).items() if kind is not float),
    )


def head(tree: T, count: int) -> T:
    """The first `count` rows of a tensor, a dict of rows, or a dataclass that holds either."""
    return pick(tree, slice(0, count))


def pick(tree: T, rows: Any) -> T:
    """Those rows (a slice or an index tensor) of a tensor, a dict of rows, or a dataclass that holds either."""
    if isinstance(tree, Tensor):
        return tree[rows]  # type: ignore[return-value]
    if isinstance(tree, dict):
        return {name: pick(value, rows) for name, value in tree.items()}  # type: ignore[return-value]
    if is_dataclass(tree):
        made: T = _rebuilt(
            tree, {field.name: pick(getattr(tree, field.name), rows) for field in fields(tree)}
        )
        return made
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
        names = [field.name for field in fields(first)]
        return _rebuilt(
            first, {name: join([getattr(tree, name) for tree in trees]) for name in names}
        )
    return first


def _rebuilt(like: Any, values: dict[str, Any]) -> Any:
    """A dataclass with these fields, made without `__post_init__`, which checks plain numbers and not columns."""
    made: Any = object.__new__(like if isinstance(like, type) else type(like))
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def replaced(item: T, **values: Any) -> T:
    """A view with other columns; `dataclasses.replace` would check them as plain numbers."""
    made: T = _rebuilt(item, {**vars(item), **values})
    return made


def count_bytes(rows: Rows) -> int:
    """What these rows weigh on the wire."""
    return sum(value.numel() * value.element_size() for value in rows.values())
