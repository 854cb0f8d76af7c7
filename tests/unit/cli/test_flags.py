"""Errors of the library name parameters; the command line adds its options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from tacit.cli.flags import FlagGroup, flags_of
from tacit.cli.main import app, main
from tacit.core.errors import DataError, StudyError

COMMANDS: Any = get_command(app)


def make_app(error: Exception) -> typer.Typer:
    """A command line of two commands that raise this error, one of them in a group of its own."""
    outer = typer.Typer(cls=FlagGroup)
    inner = typer.Typer(cls=FlagGroup)

    def fail(name: str = "x", listen: str = "", most: int = typer.Option(0, "-m", "--max")) -> None:
        raise error

    outer.command("fail")(fail)
    inner.command("fail")(fail)
    outer.add_typer(inner, name="inner")
    outer.callback()(lambda: None)
    return outer


@pytest.mark.parametrize("words", [["fail"], ["inner", "fail"]])
def test_options_are_added_once_also_in_a_group_of_commands(words: list[str]) -> None:
    cause = ValueError("why")
    error = DataError("neither works", parameters=("listen", "most", "elsewhere"))
    error.__cause__ = cause
    with pytest.raises(DataError) as caught:
        CliRunner().invoke(make_app(error), words, catch_exceptions=False)
    assert str(caught.value) == "neither works (--listen, --max)"
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("parameters", [(), ("elsewhere",)])
def test_an_error_about_no_option_stays_as_it_is(parameters: tuple[str, ...]) -> None:
    error = StudyError("it is so", parameters=parameters)
    with pytest.raises(StudyError) as caught:
        CliRunner().invoke(make_app(error), ["fail"], catch_exceptions=False)
    assert caught.value is error


@pytest.mark.parametrize(
    ("command", "parameters", "flags"),
    [
        ("psi", ("others", "listen", "connect"), ["--with", "--listen", "--connect"]),
        ("psi", ("most", "column"), ["--accept-at-most", "--as"]),
        ("psi", ("spelling",), ["--unicode", "--case", "--spaces"]),
        ("psi", ("files",), []),  # an argument, which has no flag
        ("new", ("categories", "dates"), ["--category", "--date"]),
        ("watch", ("port",), ["--port"]),
        ("run", ("data", "port"), ["--data"]),
    ],
)
def test_options_have_the_names_of_the_librarys_parameters(
    command: str, parameters: tuple[str, ...], flags: list[str]
) -> None:
    assert flags_of(COMMANDS.commands[command], parameters) == flags


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tacit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_line_ends_with_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("rounds=1", "dataset=iris", "split=iid", "algorithm=fedavg", "seed=0")
    assert run(monkeypatch, "run", *settings, "--out", "done", "--quiet") == 0
    assert run(monkeypatch, "watch", "done", "--port", "70000") == 2
    refused = capsys.readouterr().err
    expected = "expected a port from 0 to 65535; choose another port (--port)"
    assert refused == f"error: cannot listen on port 70000: {expected}\n"


def test_subcommands_of_cert_add_their_options_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataError("days: expected 1 to 36500, got 0", parameters=("days", "folder"))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tacit.channel.certificates.create_authority", refuse)
    assert run(monkeypatch, "cert", "init", "heart-study") == 2
    refused = capsys.readouterr().err
    assert refused == "error: days: expected 1 to 36500, got 0 (--days, --folder)\n"
