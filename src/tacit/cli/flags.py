"""Adds the command line's options to errors of the library, which name Python's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from tacit.core.errors import TacitError

# Parameters of the library that have other names, or several options, on the command line.
DIVIDED = {"spelling": ("unicode", "case", "spaces"), "folder": ("out", "resume")}


class FlagGroup(TyperGroup):
    """A group of commands that adds options to an error, as in `... (--listen, --connect)`."""

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
