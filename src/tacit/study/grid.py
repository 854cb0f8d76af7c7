"""The points of a grid; where some of them are refused, the error names what those share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tacit.core.errors import StudyError, TacitError
from tacit.study.texts import short_values

MOST = 100_000  # points of a grid
T = TypeVar("T")
Point = dict[str, Any]
Choices = Mapping[str, Sequence[Any]]
Refusal = tuple[Point, TacitError]


def make_points(choices: Choices, make: Callable[..., T], plain: Callable[[Any], Any]) -> list[T]:
    """One object per point of the product of the choices.

    `plain` turns a choice into what can be shown.
    """
    objects: list[T] = []
    refusals: list[Refusal] = []
    for values in combinations(choices.values()):
        point = dict(zip(choices, values, strict=True))
        try:
            objects.append(make(**point))
        except TacitError as error:
            refusals.append((point, error))
    if refusals:
        raise _first_refusal(refusals, choices, plain)
    return objects


def combinations(choices: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """The product of the choices, if it is not endless."""
    columns = list(choices)
    count = math.prod(len(column) for column in columns)
    if count > MOST:
        raise StudyError(f"the lists make a grid of {count:,} runs; use at most {MOST:,}")
    return itertools.product(*columns)


def call_point(settings: Mapping[str, Any]) -> str:
    """A point in words.

    >>> call_point({"combiner": "krum", "algorithm": "fedplus"})
    'fedplus with combiner krum'
    """
    algorithm = str(settings.get("algorithm", ""))
    texts = [f"{key} {value}" for key, value in settings.items() if key != "algorithm"]
    rest = ", ".join(texts)
    if algorithm and rest:
        return f"{algorithm} with {rest}"
    return algorithm or rest


def name_point(error: TacitError, settings: Mapping[str, Any]) -> TacitError:
    """The error with the point's name before it, if any settings tell the point from others."""
    if not settings:
        return error
    text = f"{call_point(settings)}: {error}"
    named = type(error)(text, parameters=error.parameters)
    named.__cause__ = error.__cause__
    return named


def _first_refusal(
    refusals: Sequence[Refusal], choices: Choices, plain: Callable[[Any], Any]
) -> TacitError:
    """The first refusal, with the settings that explain it.

    All points that were refused for the same reason share these settings, and other points do not.
    """
    first, error = refusals[0]
    alike = [point for point, refusal in refusals if str(refusal) == str(error)]
    guilty = {}
    for key, values in choices.items():
        shown = [plain(value) for value in values]
        texts = [str(value) for value in shown]
        refused_texts = {str(plain(point[key])) for point in alike}
        if len(refused_texts) < len(set(texts)):
            position = texts.index(str(plain(first[key])))
            guilty[key] = short_values(shown)[position]
    return name_point(error, guilty)
