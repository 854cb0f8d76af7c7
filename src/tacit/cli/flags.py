"""What all commands do where something ends them.

Errors of the library name Python's parameters, to which the command line's options are added.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from tacit.cli.signals import exit_code
from tacit.core.errors import TacitError

# Parameters of the library that have other names, or several options, on the command line.
DIVIDED = {"spelling": ("unicode", "case", "spaces"), "folder": ("out", "resume")}


class FlagGroup(TyperGroup):
    """A group of commands that adds options to an error, as in `... (--listen, --connect)`.

    An interrupt of which a command says nothing ends with one word.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            flagged = with_flags(error, command)
            if flagged is error:
                raise
            raise flagged from error.__cause__
        except KeyboardInterrupt as stop:
            print("stopped", file=sys.stderr)
            raise typer.Exit(exit_code(stop)) from None


def with_flags(error: TacitError, command: Any) -> TacitError:
    """The error, and all that it sums up, with the options of this command that they are about.

    Where an error knows a value that would help, it is shown, as in `(--drop name)`.
    """
    details = [with_flags(detail, command) for detail in error.details]
    uses = []
    for parameter in error.parameters:
        value = _written(error.values.get(parameter))
        uses += [flag + value for flag in flags_of(command, [parameter])]
    if not uses and details == list(error.details):
        return error
    text = f"{error.head} ({', '.join(uses)})" if uses else error.head
    return type(error)(text, details=details)


def _written(value: Any) -> str:
    """A value as it stands after its option; that of a mapping is key=value."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = next(f"{key}={item}" for key, item in value.items())
    return f" {shlex.quote(str(value))}"


def flags_of(command: Any, parameters: Sequence[str]) -> list[str]:
    """The options by which a command takes these parameters of the library."""
    options = {option.name: option for option in getattr(command, "params", ())}
    flags = []
    for parameter in parameters:
        names = (parameter,) if parameter in options else DIVIDED.get(parameter, ())
        for name in names:
            if name in options:
                flags += _long_flags(options[name])[:1]
    return flags


def _long_flags(option: Any) -> list[str]:
    return [flag for flag in option.opts if flag.startswith("--")]
