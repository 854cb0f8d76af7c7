"""The values of settings: names, lists and settings in braces as the objects of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin

import numpy as np

from tacit.core.errors import StudyError, shown
from tacit.core.fields import conform, field_types, takes_list
from tacit.core.registry import Registered
from tacit.study.grid import combinations


def expand(value: Any, annotation: Any, setting: str) -> list[Any]:
    """The values that a setting takes in the grid; errors name the setting."""
    if isinstance(value, Mapping) and set(value) == {"grid"}:
        return _expand_grid(value["grid"], annotation, setting)
    if isinstance(value, Mapping) and get_origin(annotation) is Mapping:
        return _expand_arguments(value, setting)
    family, takes_stages = family_of(annotation)
    if family is not None and takes_stages:
        return _expand_stages(value, family, setting)
    if isinstance(value, list | tuple) and annotation is not Any and not takes_list(annotation):
        if not value:
            raise StudyError(f"{setting}: an empty list leaves nothing to run")
        return _expand_each(value, annotation, setting)
    is_nothing = value is None and not isinstance(annotation, type)  # where that is allowed
    if family is None or is_nothing:
        return [conform(value, annotation, setting)]
    members: list[Any] = []
    for point in _expand_spec(value, family):
        members += family.build(point).variants()
    return members


def _expand_grid(choices: Any, annotation: Any, setting: str) -> list[Any]:
    """`{grid: [1, [5, 1, 2]]}`, the form for settings whose values may be lists."""
    if not isinstance(choices, list | tuple) or not choices:
        raise StudyError(
            f"{setting}: expected {{grid: [first, second, ...]}}, got {shown(choices)}"
        )
    return _expand_each(choices, annotation, setting)


def _expand_each(choices: Sequence[Any], annotation: Any, setting: str) -> list[Any]:
    values: list[Any] = []
    for choice in choices:
        values += expand(choice, annotation, setting)
    return values


def _expand_arguments(arguments: Mapping[str, Any], setting: str) -> list[Any]:
    """A model's arguments, which may hold grids."""
    choices = [expand(value, Any, f"{setting}.{key}") for key, value in arguments.items()]
    return [dict(zip(arguments, point, strict=True)) for point in combinations(choices)]


def _expand_stages(value: Any, family: type[Registered], setting: str) -> list[Any]:
    """Stages that a message goes through: here a list is one value."""
    if value is None or value in ("none", "null", ""):
        raise StudyError(
            f"{setting}: expected a list, got {shown(value)}; for no {setting}, use [], an empty"
            " list"
        )
    stages = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(stage, list | tuple) for stage in stages):
        raise StudyError(
            f"{setting}: a list is one {setting} of several stages; to vary it, use {{grid: [...]}}"
        )
    choices = [expand(stage, family, setting) for stage in stages]
    return list(combinations(choices))


def _expand_spec(spec: Any, family: type[Registered]) -> list[Any]:
    """Grids inside `{name: fedprox, mu: [0.1, 1]}`."""
    if not isinstance(spec, Mapping):
        return [spec]
    name = spec.get(family.key)
    if isinstance(name, list):  # {kind: [sign_flip, gaussian], count: 4}
        return _expand_names(spec, name, family)
    if not isinstance(name, str):
        return [spec]
    types = field_types(family.find(name))
    settings = {key: value for key, value in spec.items() if key != family.key}
    family.check_settings(name, settings)
    choices = [expand(value, types[key], f"{name}.{key}") for key, value in settings.items()]
    points = []
    for values in combinations(choices):
        point = dict(zip(settings, values, strict=True))
        points.append({family.key: name, **point})
    return points


def _expand_names(spec: Mapping[str, Any], names: list[Any], family: type[Registered]) -> list[Any]:
    """The same settings for each of these names."""
    points: list[Any] = []
    for name in names:
        points += _expand_spec({**spec, family.key: name}, family)
    return points


def family_of(annotation: Any) -> tuple[type[Registered] | None, bool]:
    """The family that a setting's values belong to, if any, and whether it takes a list of them."""
    choices = [choice for choice in get_args(annotation) if choice not in (type(None), ...)]
    member = choices[0] if choices else annotation
    if not (isinstance(member, type) and issubclass(member, Registered)):
        return None, False
    return member, get_origin(annotation) is tuple


def types_of(kind: type) -> dict[str, Any]:
    """What each setting of a kind of run takes; one whose default is nothing may be nothing."""
    return _types_of(kind)


def defaults_of(kind: type) -> dict[str, Any]:
    """Each setting of a kind of run at its default."""
    return _defaults_of(kind)


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    types = dict(field_types(kind))
    for item in fields(kind):
        if item.metadata["default"] is None:
            types[item.name] = types[item.name] | None
    return types


@cache
def _defaults_of(kind: Any) -> dict[str, Any]:
    types = types_of(kind)
    values = {}
    for item in fields(kind):
        choices = expand(item.metadata["default"], types[item.name], item.name)
        values[item.name] = choices[0]
    return values


def native(value: Any) -> Any:
    """Ranges and NumPy's arrays and numbers as plain lists and numbers."""
    if isinstance(value, range):
        return list(value)
    if isinstance(value, dict):
        return {key: native(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [native(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
