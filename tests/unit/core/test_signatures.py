from __future__ import annotations

import inspect
from typing import Any, TypedDict, Unpack

import pytest

from tacit.core.signatures import takes_options


class Paint(TypedDict, total=False):
    colour: str
    coats: int | None


class Wallpaper(Paint, total=False):
    pattern: str


PAINT: Paint = {"colour": "white", "coats": None}


@takes_options(Paint, PAINT)
def paint(wall: str, side: str = "north", *, ladder: bool = True, **options: Unpack[Paint]) -> Any:
    """Paints a wall."""
    return wall, side, ladder, options


def test_the_signature_shows_every_option_with_its_type_and_default() -> None:
    assert str(inspect.signature(paint)) == (
        "(wall: 'str', side: 'str' = 'north', *, ladder: 'bool' = True, "
        "colour: 'str' = 'white', coats: 'int | None' = None) -> 'Any'"
    )


def test_the_function_keeps_its_name_and_docstring() -> None:
    assert (paint.__name__, paint.__doc__) == ("paint", "Paints a wall.")


def test_the_function_gets_all_options() -> None:
    assert paint("a") == ("a", "north", True, {"colour": "white", "coats": None})
    assert paint("a", "east", coats=2, ladder=False) == (
        "a",
        "east",
        False,
        {"colour": "white", "coats": 2},
    )
    assert PAINT == {"colour": "white", "coats": None}


def test_an_unknown_option_gets_a_suggestion() -> None:
    unknown: dict[str, Any] = {"color": "red"}
    with pytest.raises(TypeError, match=r"^paint\(\) got .* 'color'; did you mean colour\?$"):
        paint("a", **unknown)


def test_a_name_unlike_any_option_gets_all_names() -> None:
    unknown: dict[str, Any] = {"zzz": 1}
    with pytest.raises(TypeError, match=r"'zzz'; known: coats, colour, ladder, side, wall$"):
        paint("a", **unknown)


def test_an_argument_that_is_missing_is_told_as_python_does() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'wall'"):
        paint()  # type: ignore[call-arg]


def test_options_are_inherited() -> None:
    @takes_options(Wallpaper, {**PAINT, "pattern": "plain"})
    def hang(**options: Unpack[Wallpaper]) -> Any:
        return options

    assert list(inspect.signature(hang).parameters) == ["colour", "coats", "pattern"]
    assert hang(pattern="striped") == {"colour": "white", "coats": None, "pattern": "striped"}


def test_an_option_without_a_default_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="Paint and its defaults differ in coats, size"):
        takes_options(Paint, {"colour": "white", "size": 1})
