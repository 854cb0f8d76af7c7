"""Which side of an algorithm is the client's: its hooks are marked in `algorithm.py`.

Rows of runs whose algorithms have the same client's side can share a batch, whatever their servers
do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from tacit.core.fields import field_types

Hook = TypeVar("Hook")
T = TypeVar("T")
MARK = "_client_side"


def client_side(hook: Hook) -> Hook:
    """Marks a hook of the base class that runs on a client."""
    setattr(hook, MARK, True)
    return hook


def client_class(algorithm: type[T]) -> type[T]:
    """The class that the client's side of an algorithm belongs to.

    Methods that differ on the server only share it.
    """
    key: Any = algorithm  # classes are hashable, whatever their types say
    shared: type[T] = _client_class(key)
    return shared


@lru_cache(maxsize=256)
def _client_class(algorithm: Any) -> Any:
    base = _base(algorithm)
    lineage = [cls for cls in algorithm.__mro__ if issubclass(cls, base)]
    active = [cls for cls in lineage if cls is base or _speaks_to_clients(cls, base)]
    for cls in active:
        if set(active) <= set(cls.__mro__):
            return cls
    return algorithm


def _base(algorithm: type) -> type:
    """The earliest ancestor whose hooks are marked."""
    marked = [cls for cls in algorithm.__mro__ if _has_marks(cls)]
    return marked[-1]


def _has_marks(cls: type) -> bool:
    return any(_is_marked(value) for value in vars(cls).values())


def _speaks_to_clients(cls: type, base: type) -> bool:
    """Whether the class says something that a client could notice.

    It does if it overrides a marked hook, or has a name that the base does not have: a hook may use
    that.
    """
    bookkeeping = ("__", "_abc_")  # Python's own
    names = {name for name in vars(cls) if not name.startswith(bookkeeping)}
    names -= field_types(cls).keys()
    overrides = any(_is_marked(vars(base).get(name)) for name in names)
    adds = any(not hasattr(base, name) for name in names)
    return overrides or adds


def _is_marked(value: Any) -> bool:
    hook = value.fget if isinstance(value, property) else value
    return bool(getattr(hook, MARK, False))
