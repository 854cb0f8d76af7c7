"""Short texts for values of settings: what tells them apart, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.core.registry import Registered


def short_values(values: list[Any]) -> list[Any]:
    """`fedprox(mu=0.1)`: a name with the fields in which values of that name differ. Plain values stay as they are."""
    specs = [
        part
        for value in values
        for part in (value if isinstance(value, list) else [value])
        if _name(part)
    ]

    def short(value: Any) -> Any:
        if isinstance(value, list) and all(_name(part) for part in value):
            return " + ".join(short(part) for part in value) or "plain"
        if not (name := _name(value)):
            return text(value) if isinstance(value, list) else value
        twins = [other for other in specs if _name(other) == name]
        differing = [key for key in value if len({str(twin[key]) for twin in twins}) > 1]
        inner = ", ".join(f"{key}={text(value[key])}" for key in differing)
        return f"{name}({inner})" if inner else name

    return [short(value) for value in values]


def text(value: Any) -> str:
    """A plain value, numbers without a tail of digits."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Registered objects and tuples as what YAML and JSON can hold."""
    if isinstance(value, Registered):
        return plain(value.spec())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _name(value: Any) -> str | None:
    """The name of a method, of whatever family."""
    return value.get("name") or value.get("kind") if isinstance(value, dict) else None
