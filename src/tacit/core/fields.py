"""Checks values that come from outside against the type annotations of the dataclass that receives them."""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union

from tacit.core.errors import StudyError, shown, suggest


def field_types(cls: type) -> dict[str, Any]:
    """Each dataclass field's resolved annotation."""
    return _field_types(cls)


@cache
def _field_types(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def takes_list(annotation: Any) -> bool:
    """Whether a list is one value for this annotation.

    >>> takes_list(int | tuple[int, ...]), takes_list(float)
    (True, False)
    """
    parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return any(typing.get_origin(part) is tuple for part in parts)


def conform(value: Any, annotation: Any, where: str) -> Any:
    """`value` as the annotation wants it (lists become tuples, 1 becomes 1.0), or a StudyError that names `where`.

    >>> conform([1, "2e-1"], tuple[float, ...], "rates")
    (1.0, 0.2)
    """
    try:
        return _conform(value, annotation)
    except (TypeError, ValueError, OverflowError):
        raise StudyError(
            f"{where}: expected {describe(annotation)}, got {shown(value)}{_hint(value, annotation)}"
        ) from None


def check_names(given: Mapping[str, Any], known: typing.Iterable[str], where: str) -> None:
    """Refuses a setting that does not exist."""
    known = list(known)
    for name in given:
        if name not in known:
            raise StudyError(
                f"{where} has no setting {name!r}; {suggest(str(name), known) if known else 'it has none'}"
            )


def describe(annotation: Any) -> str:
    """The annotation in words, for error messages."""
    if _is_union(annotation):
        return " or ".join(describe(part) for part in typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return " or ".join(str(part) for part in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return f"a list of {_plural(typing.get_args(annotation)[0])}"
    if typing.get_origin(annotation) in (dict, Mapping):
        return "settings in braces, such as {width: 8}"
    words = {
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        str: "text",
        type(None): "nothing (null)",
    }
    return words.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _plural(annotation: Any) -> str:
    words = {float: "numbers", int: "whole numbers", str: "texts"}
    return words.get(annotation) or ("lists" if takes_list(annotation) else describe(annotation))


def _hint(value: Any, annotation: Any) -> str:
    """What to do about a value that is almost right."""
    if isinstance(value, str) and _is_number(value):
        return "; leave out the quotes"
    if (
        takes_list(annotation)
        and isinstance(value, int | float | str)
        and not isinstance(value, bool)
    ):
        return f"; write [{value}]"
    return ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _conform(value: Any, annotation: Any) -> Any:
    if annotation is Any:
        return value
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_union(annotation):
        return _first_that_fits(value, parts)
    if origin is Literal:
        if value not in parts:
            raise ValueError
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(_conform(item, parts[0]) for item in value)
    if origin in (dict, Mapping):
        return dict(value)
    return _scalar(value, annotation)


def _first_that_fits(value: Any, parts: tuple[Any, ...]) -> Any:
    for part in sorted(
        parts, key=lambda part: part is not type(value)
    ):  # an exact match goes first: 1 stays an int
        try:
            return _conform(value, part)
        except (TypeError, ValueError, OverflowError):
            continue
    raise ValueError


def _scalar(value: Any, wanted: type) -> Any:
    if wanted is type(None):
        if value is not None:
            raise TypeError
        return None
    if wanted is float and not isinstance(value, bool):
        return float(value)  # YAML reads 1e-3 as text
    if (
        wanted is int
        and not isinstance(value, bool)
        and isinstance(value, int | float)
        and int(value) == value
    ):
        return int(value)
    if wanted is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    raise TypeError
