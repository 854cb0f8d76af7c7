"""The values of settings: what stands in a study (names, lists, settings in braces) as the objects of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin

import numpy as np

from tacit.core.errors import StudyError, shown
from tacit.core.fields import conform, field_types, takes_list
from tacit.core.registry import Registered


def expand(value: Any, annotation: Any, where: str) -> list[Any]:
    """The values that a setting takes in the grid."""
    if isinstance(value, Mapping) and set(value) == {"grid"}:
        if not isinstance(value["grid"], list | tuple) or not value["grid"]:
            raise StudyError(
                f"{where}: expected {{grid: [first, second, ...]}}, got {shown(value['grid'])}"
            )
        return [item for part in value["grid"] for item in expand(part, annotation, where)]
    if get_origin(annotation) is Mapping and isinstance(
        value, Mapping
    ):  # a model's arguments: grids inside them
        choices = [expand(item, Any, f"{where}.{key}") for key, item in value.items()]
        return [dict(zip(value, point, strict=True)) for point in itertools.product(*choices)]
    family, several = family_of(annotation)
    if several:  # a list is one value: stages that a message goes through
        if value is None or value in ("none", "null", ""):
            raise StudyError(
                f"{where}: expected a list, got {shown(value)}; for no {where}, use [], an empty list"
            )
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, list | tuple) for part in parts):
            raise StudyError(
                f"{where}: a list is one {where} of several stages; to vary it, use {{grid: [...]}}"
            )
        return list(itertools.product(*(expand(part, family, where) for part in parts)))
    if isinstance(value, list | tuple) and annotation is not Any and not takes_list(annotation):
        if not value:
            raise StudyError(f"{where}: an empty list leaves nothing to run")
        return [item for part in value for item in expand(part, annotation, where)]
    if family is None or (value is None and not isinstance(annotation, type)):
        return [conform(value, annotation, where)]
    return [family.build(point) for point in _expand_spec(value, family)]


def family_of(annotation: Any) -> tuple[type[Registered] | None, bool]:
    """The family that a setting's values belong to, if any, and whether it takes a list of them."""
    parts = [part for part in get_args(annotation) if part not in (type(None), ...)] or [annotation]
    found = parts[0] if isinstance(parts[0], type) and issubclass(parts[0], Registered) else None
    return found, found is not None and get_origin(annotation) is tuple


def types_of(kind: type) -> dict[str, Any]:
    """What each setting of a kind of run takes; one whose default is nothing may also be nothing."""
    return _types_of(kind)


def defaults_of(kind: type) -> dict[str, Any]:
    """Each setting of a kind of run at its default."""
    return _defaults_of(kind)


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    types = field_types(kind)
    optional = {item.name for item in fields(kind) if item.metadata["default"] is None}
    return {
        name: annotation | None if name in optional else annotation
        for name, annotation in types.items()
    }


@cache
def _defaults_of(kind: Any) -> dict[str, Any]:
    types = types_of(kind)
    return {
        item.name: expand(item.metadata["default"], types[item.name], item.name)[0]
        for item in fields(kind)
    }


def _expand_spec(spec: Any, family: type[Registered]) -> list[Any]:
    """Grids inside `{name: fedprox, mu: [0.1, 1]}`."""
    if isinstance(spec, Mapping) and isinstance(
        spec.get(family.key), list
    ):  # {kind: [sign_flip, gaussian], count: 4}
        return [
            one
            for name in spec[family.key]
            for one in _expand_spec({**spec, family.key: name}, family)
        ]
    if not isinstance(spec, Mapping) or not isinstance(spec.get(family.key), str):
        return [spec]
    name = spec[family.key]
    types = field_types(family.find(name))
    keys = [key for key in spec if key != family.key]
    family.check_settings(name, {key: spec[key] for key in keys})
    choices = [expand(spec[key], types[key], f"{name}.{key}") for key in keys]
    return [
        {family.key: name, **dict(zip(keys, point, strict=True))}
        for point in itertools.product(*choices)
    ]


def native(value: Any) -> Any:
    """Ranges and NumPy's arrays and numbers as plain lists and numbers."""
    if isinstance(value, range):
        return list(value)
    if isinstance(value, dict):
        return {key: native(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [native(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
