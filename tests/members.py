"""The members of a family with each of their settings at its ends.

The registry finds them, also those that are added later.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from tacit.core.errors import StudyError
from tacit.core.fields import field_types
from tacit.core.registry import Registered


def members(family: type[Registered]) -> list[Any]:
    """Every member as it is by default, and with one setting changed at a time."""
    variants = []
    for cls in family.known().values():
        default = cls.build(cls.name)
        variants.append(default)
        for key, value in ends(cls):
            variant = changed_in(default, key, value)
            if variant not in (None, default):
                variants.append(variant)
    return variants


def ends(cls: type[Registered]) -> list[tuple[str, Any]]:
    """Settings whose values can be listed, and shares from 0 to 1."""
    pairs = []
    for key, annotation in field_types(cls).items():
        pairs += [(key, value) for value in _values(annotation)]
    return pairs


def _values(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if annotation is bool:
        return (True, False)
    if annotation is float:
        return (0.0, 1.0)
    return ()


def changed_in(default: Any, key: str, value: Any) -> Any:
    """The same with another value; None where it is refused."""
    settings = {field.name: getattr(default, field.name) for field in fields(default)}
    try:
        return type(default)(**{**settings, key: value})
    except StudyError:
        return None
