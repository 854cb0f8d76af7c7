"""The points of a grid; where some of them are refused, the error names what those have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tacit.core.errors import TacitError
from tacit.study.texts import short_values

T = TypeVar("T")
Point = dict[str, Any]


def make_points(
    choices: Mapping[str, Sequence[Any]], make: Callable[..., T], plain: Callable[[Any], Any]
) -> list[T]:
    """One object per point of the product of the choices; `plain` turns a choice into what can be shown."""
    made: list[T] = []
    refused: list[tuple[Point, TacitError]] = []
    for values in itertools.product(*choices.values()):
        point = dict(zip(choices, values, strict=True))
        try:
            made.append(make(**point))
        except TacitError as error:
            refused.append((point, error))
    if refused:
        raise _naming(refused, choices, plain)
    return made


def call_point(settings: Mapping[str, Any]) -> str:
    """A point in words.

    >>> call_point({"combiner": "krum", "algorithm": "fedplus"})
    'fedplus with combiner krum'
    """
    rest = [f"{key} {value}" for key, value in settings.items() if key != "algorithm"]
    return " with ".join(
        part for part in (str(settings.get("algorithm", "")), ", ".join(rest)) if part
    )


def renamed(error: TacitError, settings: Mapping[str, Any]) -> TacitError:
    """The error with the point's name before it, if there is anything to say."""
    if not settings:
        return error
    named = type(error)(f"{call_point(settings)}: {error}")
    named.__cause__ = error.__cause__
    return named


def _naming(
    refused: Sequence[tuple[Point, TacitError]],
    choices: Mapping[str, Sequence[Any]],
    plain: Callable[[Any], Any],
) -> TacitError:
    """The first refusal, and the settings that all points refused for that reason share and some others do not."""
    first, error = refused[0]
    alike = [point for point, other in refused if str(other) == str(error)]
    guilty = {}
    for key, values in choices.items():
        texts = [str(plain(value)) for value in values]
        if len({str(plain(point[key])) for point in alike}) < len(set(texts)):
            guilty[key] = short_values([plain(value) for value in values])[
                texts.index(str(plain(first[key])))
            ]
    return renamed(error, guilty)
