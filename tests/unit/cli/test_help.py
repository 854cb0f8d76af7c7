"""What `--help` shows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from commands import tacit
from typer.models import ArgumentInfo

from tacit.cli.main import app


def commands_of(group: typer.Typer, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of every command, with its function."""
    for command in group.registered_commands:
        yield (*words, str(command.name)), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands_of(inner.typer_instance, *words, str(inner.name))


def arguments_of(function: Any) -> list[ArgumentInfo]:
    """What a command's function says of its positional arguments."""
    hints = get_type_hints(function, include_extras=True)
    arguments = []
    for name in inspect.signature(function).parameters:
        notes = getattr(hints[name], "__metadata__", ())
        arguments += [note for note in notes if isinstance(note, ArgumentInfo)]
    return arguments


def helps() -> list[tuple[tuple[str, ...], str]]:
    """The help of each positional argument; where it has none, the command describes it."""
    texts = []
    for words, function in commands_of(app):
        for argument in arguments_of(function):
            if argument.help:
                texts.append((words, argument.help))
    return texts


@pytest.mark.parametrize(("words", "text"), helps())
def test_the_help_of_every_positional_argument_is_shown(
    words: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    shown = tacit(*words, "--help", cwd=tmp_path, COLUMNS="200")
    assert shown.returncode == 0
    assert text in shown.stdout


def test_every_argument_without_a_help_is_described_by_its_command() -> None:
    for words, function in commands_of(app):
        for argument in arguments_of(function):
            if not argument.help:
                first_word = str(argument.metavar).strip("[").split()[0].strip("]")
                assert first_word in str(function.__doc__), words


def test_arguments_of_all_commands_are_found() -> None:
    commands = {" ".join(words) for words, _ in helps()}
    assert commands >= {"report", "watch", "psi", "list", "new", "cert show"}
