"""What is wrong with a command line, in one line.

The line holds the parser's complaint, what was probably meant, and where to look.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from tacit.core.errors import suggest

# The base of the parser's exceptions: click's or, in newer versions of typer, that of its own copy.
Complaint: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)


def explain(error: Any) -> str:
    """The complaint, with a remedy."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "tacit"
    see = f"see {path} --help"
    if context is not None and type(error).__name__ == "NoSuchOption":
        hint = _meant_option(error.option_name, context)
        return f"{path} has no option {error.option_name}; {hint}{see}"
    if context is not None and _is_unknown_command(error, context):
        wrong = error.message.split("'")[1]
        hint = _meant_command(wrong, context.command.list_commands(context))
        return f"{path} has no command {wrong!r}; {hint}{see}"
    complaint = error.format_message().rstrip(".")
    return f"{complaint[:1].lower()}{complaint[1:]}; {see}"


def _is_unknown_command(error: Any, context: Any) -> bool:
    return hasattr(context.command, "list_commands") and "No such command" in error.message


def _meant_option(wrong: str, context: Any) -> str:
    """The option or, where it is a setting's name, how to change a setting."""
    from tacit.study.settings import SETTINGS

    options = [flag for option in context.command.params for flag in option.opts]
    flags = {flag: f"did you mean {flag}? " for flag in options if flag.startswith("--")}
    settings = {}
    if context.command.name == "run":
        for key in SETTINGS:
            flag = f"--{key.replace('_', '-')}"
            settings[flag] = f"a setting is written without dashes, {key}=...; "
    hints = {**settings, **flags}
    return hints.get(_closest(wrong.replace("_", "-"), hints), "")


def _meant_command(wrong: str, commands: list[str]) -> str:
    """The command, or `tacit run` in front of what looks like its arguments."""
    if "run" in commands and (wrong.endswith((".yaml", ".yml")) or "=" in wrong):
        return f"did you mean tacit run {wrong}? "
    hint = suggest(wrong, commands)
    return f"{hint} " if hint.endswith("?") else f"{hint}; "


def _closest(wrong: str, words: Iterable[str]) -> str:
    """The word that was probably meant, or nothing."""
    hint = suggest(wrong, words)
    if not hint.startswith("did you mean "):
        return ""
    return hint.removeprefix("did you mean ").removesuffix("?")
