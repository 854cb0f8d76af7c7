"""Checks values from outside against the annotations of the dataclass that receives them."""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Iterable, Mapping
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
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return any(typing.get_origin(option) is tuple for option in options)


def conform(value: Any, annotation: Any, where: str) -> Any:
    """`value` as the annotation wants it: lists become tuples, 1 becomes 1.0.

    Where that cannot be done, a StudyError names `where`.

    >>> conform([1, "2e-1"], tuple[float, ...], "rates")
    (1.0, 0.2)
    """
    try:
        return _conform(value, annotation)
    except (TypeError, ValueError, OverflowError):
        hint = _hint(value, annotation)
        expected = describe(annotation)
        raise StudyError(f"{where}: expected {expected}, got {shown(value)}{hint}") from None


def check_names(settings: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Refuses a setting that is none of these names."""
    names = list(names)
    for setting in settings:
        if setting in names:
            continue
        hint = suggest(str(setting), names) if names else "it has none"
        raise StudyError(f"{where} has no setting {shown(setting)}; {hint}")


def describe(annotation: Any) -> str:
    """The annotation in words, for error messages."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if _is_union(annotation):
        return " or ".join(describe(option) for option in arguments)
    if origin is Literal:
        return " or ".join(str(option) for option in arguments)
    if origin is tuple:
        return f"a list of {_plural(arguments[0])}"
    if origin in (dict, Mapping):
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
    if annotation in words:
        return words[annotation]
    return "lists" if takes_list(annotation) else describe(annotation)


def _hint(value: Any, annotation: Any) -> str:
    """What to do about a value that is almost right."""
    if isinstance(value, str) and _is_number(value):
        return "; leave out the quotes"
    single = isinstance(value, int | float | str) and not isinstance(value, bool)
    if single and takes_list(annotation):
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
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if _is_union(annotation):
        return _first_that_fits(value, arguments)
    if origin is Literal:
        if value not in arguments:
            raise ValueError
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(_conform(item, arguments[0]) for item in value)
    if origin in (dict, Mapping):
        return dict(value)
    return _scalar(value, annotation)


def _first_that_fits(value: Any, options: tuple[Any, ...]) -> Any:
    # the value's own type is tried first: 1 stays an int
    ordered = sorted(options, key=lambda option: option is not type(value))
    for option in ordered:
        try:
            return _conform(value, option)
        except (TypeError, ValueError, OverflowError):
            continue
    raise ValueError


def _scalar(value: Any, wanted: type) -> Any:
    if isinstance(value, bool) and wanted in (int, float):
        raise TypeError  # though Python takes True for a number
    if wanted is float:
        return float(value)  # YAML reads 1e-3 as text
    if wanted is int:
        return _whole(value)
    if wanted is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, wanted):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int | float) or int(value) != value:
        raise TypeError
    return int(value)
