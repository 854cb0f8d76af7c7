"""Short texts for the values of settings: just enough to tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from tacit.core.registry import Registered

SIMPLE = (type(None), bool, int, float, str)
Spec = dict[str, Any]  # a method as a file has it: {"name": "fedprox", "mu": 0.1}


def short_values(values: list[Any]) -> list[Any]:
    """A method as its name, with the fields in which values of that name differ.

    Values that are no methods stay as they are.

    >>> short_values([{"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 1}, 3])
    ['fedprox(mu=0.1)', 'fedprox(mu=1)', 3]
    """
    varying = _varying_fields(_specs_in(values))
    return [_short_value(value, varying) for value in values]


def _specs_in(values: list[Any]) -> list[Spec]:
    """The methods among the values, those in lists too."""
    specs: list[Spec] = []
    for value in values:
        items = value if isinstance(value, list) else [value]
        specs += [item for item in items if _name(item)]
    return specs


def _varying_fields(specs: list[Spec]) -> dict[str, set[str]]:
    """For each method's name, the fields in which these specs of it differ."""
    first: dict[str, dict[str, str]] = {}
    varying: dict[str, set[str]] = {}
    for spec in specs:
        name = str(_name(spec))
        texts = {key: str(value) for key, value in spec.items()}
        expected = first.setdefault(name, texts)
        differing = {key for key, value in texts.items() if value != expected.get(key)}
        varying.setdefault(name, set()).update(differing)
    return varying


def _short_value(value: Any, varying: dict[str, set[str]]) -> Any:
    if isinstance(value, list):
        if not all(_name(item) for item in value):
            return text(value)
        return " + ".join(_short_spec(item, varying) for item in value) or "plain"
    if _name(value):
        return _short_spec(value, varying)
    return value


def _short_spec(spec: Spec, varying: dict[str, set[str]]) -> str:
    """`fedprox(mu=0.1)`, if the mu of fedprox varies."""
    name = str(_name(spec))
    fields = []
    for key, value in spec.items():
        if key in varying[name]:
            fields.append(f"{key}={text(value)}")
    return f"{name}({', '.join(fields)})" if fields else name


def short(value: Any, *, full: bool = False) -> str:
    """A setting as people write it: a method's name with what is not the default.

    If `full`, the method's numbers are shown too.
    """
    if isinstance(value, Registered):
        return _short_method(value, full=full)
    if isinstance(value, list | tuple):
        items = [short(item, full=full) for item in value]
        return f"[{', '.join(items)}]"
    if value is None:
        return "none"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _short_method(method: Registered, *, full: bool) -> str:
    settings = []
    for position, field in enumerate(fields(method)):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        is_main_number = position == 0 and isinstance(value, int | tuple)
        is_shown = full and value and (is_main_number or isinstance(value, float))
        if is_shown or value != _default_of(field):
            settings.append(f"{field.name}={short(value)}")
    name = str(method.spec()[method.key])
    return f"{name}({', '.join(settings)})" if settings else name


def _default_of(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def text(value: Any) -> str:
    """A plain value, numbers without a tail of digits."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Registered objects and tuples as what YAML and JSON can hold."""
    if type(value) in SIMPLE:  # most are, and asking an abstract class takes long
        return value
    if isinstance(value, Registered):
        return plain(value.spec())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _name(value: Any) -> str | None:
    """The name of a method, whatever its family."""
    if not isinstance(value, dict):
        return None
    return value.get("name") or value.get("kind")
