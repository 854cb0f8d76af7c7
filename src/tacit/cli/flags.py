"""What all commands do where something ends them.

Errors of the library name Python's parameters, to which the command line's options are added.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
            flags = flags_of(command, error.parameters)
            if not flags:
                raise
            text = f"{error} ({', '.join(flags)})"
            raise type(error)(text) from error.__cause__
        except KeyboardInterrupt as stop:
            print("stopped", file=sys.stderr)
            raise typer.Exit(exit_code(stop)) from None


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
