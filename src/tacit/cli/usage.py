"""What is wrong with a command line, in one line: the parser's complaint, what was probably meant, where to look."""

from __future__ import annotations

from typing import Any

import typer

from tacit.core.errors import suggest

# The base of the parser's exceptions: click's or, in newer versions of typer, that of its own copy of click.
Complaint: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)


def explain(error: Any) -> str:
    """The complaint, with a remedy."""
    context = getattr(error, "ctx", None)
    see = f"see {context.command_path if context else 'tacit'} --help"
    said = error.format_message().rstrip(".")
    plain = f"{said[:1].lower()}{said[1:]}; {see}"
    if context is None:
        return plain
    if type(error).__name__ == "NoSuchOption":
        return f"{context.command_path} has no option {error.option_name}; {_meant(error.option_name, context)}{see}"
    if hasattr(context.command, "list_commands") and "No such command" in error.message:
        wrong = error.message.split("'")[1]
        known = context.command.list_commands(context)
        return (
            f"{context.command_path} has no command {wrong!r}; {_meant_command(wrong, known)}{see}"
        )
    return plain


def _meant(wrong: str, context: Any) -> str:
    """The option or, where it is a setting's name, how to change a setting."""
    from tacit.study.settings import SETTINGS

    known = [
        name
        for parameter in context.command.params
        for name in parameter.opts
        if name.startswith("--")
    ]
    settings = [f"--{key}" for key in SETTINGS] if context.command.name == "run" else []
    found = suggest(wrong.replace("_", "-"), [*known, *(key.replace("_", "-") for key in settings)])
    if not found.startswith("did you mean"):
        return ""
    name = found.removeprefix("did you mean ").removesuffix("?")
    if name in known:
        return f"{found} "
    return f"a setting is written without dashes, {name.lstrip('-').replace('-', '_')}=...; "


def _meant_command(wrong: str, known: list[str]) -> str:
    if "run" in known and (wrong.endswith((".yaml", ".yml")) or "=" in wrong):
        return f"did you mean tacit run {wrong}? "
    return (
        f"{suggest(wrong, known)} "
        if "did you mean" in suggest(wrong, known)
        else f"{suggest(wrong, known)}; "
    )
