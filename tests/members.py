"""The members of a family with each of their settings at its ends, found by the registry, also those added later."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from tacit.core.errors import StudyError
from tacit.core.fields import field_types
from tacit.core.registry import Registered


def members(family: type[Registered]) -> list[Any]:
    """Every member as it is by default, and with one setting changed at a time."""
    found = []
    for cls in family.known().values():
        default = cls.build(cls.name)
        changed = [changed_in(default, key, value) for key, value in ends(cls)]
        others = [member for member in changed if member not in (None, default)]
        found += [default, *others]
    return found


def ends(cls: type[Registered]) -> list[tuple[str, Any]]:
    """Settings whose values can be listed, and shares from 0 to 1."""
    pairs = []
    for key, kind in field_types(cls).items():
        values = (
            get_args(kind)
            if get_origin(kind) is Literal
            else {bool: (True, False), float: (0.0, 1.0)}.get(kind, ())
        )
        pairs += [(key, value) for value in values]
    return pairs


def changed_in(default: Any, key: str, value: Any) -> Any:
    """The same with another value; None where it is refused."""
    settings = {field.name: getattr(default, field.name) for field in fields(default)}
    try:
        return type(default)(**{**settings, key: value})
    except StudyError:
        return None
