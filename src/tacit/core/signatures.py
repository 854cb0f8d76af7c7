"""Functions that take their options as a TypedDict: `**options: Unpack[Options]`, as in PEP 692.

The options are defined once. `help` and `inspect.signature` show each of them, with its type and
its default, for every function that takes them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ForwardRef, TypeVar, cast

from tacit.core.errors import suggest

F = TypeVar("F", bound=Callable[..., Any])


def takes_options(options: type, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Decorates a function that takes these options; when called, it always gets all of them.

    `options` is the TypedDict, `defaults` has a value for each of its keys.

    >>> from typing import TypedDict, Unpack
    >>> class Paint(TypedDict, total=False):
    ...     colour: str
    ...     coats: int
    >>> @takes_options(Paint, {"colour": "white", "coats": 2})
    ... def paint(wall: str, **options: Unpack[Paint]) -> str:
    ...     return f"{wall} wall: {options['colour']}, {options['coats']} coats"
    >>> inspect.signature(paint)
    <Signature (wall: 'str', *, colour: 'str' = 'white', coats: 'int' = 2) -> 'str'>
    >>> paint("north", coats=3)
    'north wall: white, 3 coats'
    >>> paint("north", color="red")
    Traceback (most recent call last):
    TypeError: paint() got an unexpected keyword argument 'color'; did you mean colour?
    """
    annotations = options.__annotations__
    if annotations.keys() != defaults.keys():
        unmatched = sorted(annotations.keys() ^ defaults.keys())
        raise TypeError(f"{options.__name__} and its defaults differ in {', '.join(unmatched)}")
    parameters = [
        _keyword_only(name, annotation, defaults[name]) for name, annotation in annotations.items()
    ]

    def decorate(function: F) -> F:
        signature = _with_parameters(inspect.signature(function), parameters)

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            _check_names(function.__name__, keywords, signature.parameters)
            return function(*arguments, **{**defaults, **keywords})

        call.__signature__ = signature  # type: ignore[attr-defined]
        return cast(F, call)

    return decorate


def _keyword_only(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    if isinstance(annotation, ForwardRef):  # a TypedDict keeps annotations that are text as these
        annotation = annotation.__forward_arg__
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _with_parameters(
    signature: inspect.Signature, parameters: list[inspect.Parameter]
) -> inspect.Signature:
    """The signature with these parameters in place of its `**options`."""
    first = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return signature.replace(parameters=[*first, *parameters])


def _check_names(function: str, keywords: Iterable[str], names: Iterable[str]) -> None:
    for keyword in keywords:
        if keyword not in names:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {keyword!r}; "
                f"{suggest(keyword, names)}"
            )
