"""`tacit list`: what there is, straight from the registry."""

from __future__ import annotations

import inspect
import io
import json
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from tacit.cli.completion import complete_family
from tacit.cli.families import families
from tacit.cli.options import Json
from tacit.core.errors import StudyError, suggest
from tacit.core.registry import Registered

FOLDED = 100  # columns, where a table is read in a pipe or a file


def list_methods(
    family: Annotated[
        str | None,
        typer.Argument(
            help="algorithms, splits, datasets, ...; all of them if left out.",
            autocompletion=complete_family,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the names alone, one per line.")
    ] = False,
) -> None:
    """List algorithms, splits, data sets and everything else a study can name."""
    known = families()
    family = f"{family}s" if family is not None and f"{family}s" in known else family
    if family is not None and family not in known:
        raise StudyError(f"there is no list of {family!r}; {suggest(family, known)}")
    chosen = {family: known[family]} if family else known
    found = {
        name: [row(name_, cls) for name_, cls in base.known().items()]
        for name, base in chosen.items()
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2, default=str))
    elif quiet:
        typer.echo("\n".join(one["name"] for rows in found.values() for one in rows))
    else:
        _show(found)


def row(name: str, cls: type[Registered]) -> dict[str, Any]:
    """A member's name, one-line summary, settings with their defaults, and the choices of those that are a choice."""
    from tacit.core.fields import field_types

    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    settings = {field.name: _default(field) for field in fields(cls)}  # type: ignore[arg-type]
    choices = {
        key: list(get_args(kind))
        for key, kind in field_types(cls).items()
        if get_origin(kind) is Literal
    }
    return {"name": name, "summary": summary, "settings": settings, "choices": choices}


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else "required"


def shown_settings(one: dict[str, Any]) -> str:
    """Settings as a file would spell them, choices as `weights=samples|uniform`, the default first."""
    return ", ".join(
        f"{key}={_spelt(value, one['choices'].get(key))}" for key, value in one["settings"].items()
    )


def _spelt(value: Any, choices: list[Any] | None) -> str:
    if choices:
        return "|".join(
            str(choice) for choice in sorted(choices, key=lambda choice: choice != value)
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(_spelt(item, None) for item in value)}]"
    plain = (
        {None: "null", True: "true", False: "false"}
        if value is None or isinstance(value, bool)
        else {}
    )
    return plain.get(value, str(value)) if plain else str(value)


def _show(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from tacit.cli.terminal import console

    screen = (
        console()
        if console().is_terminal
        else Console(width=FOLDED, record=True, file=io.StringIO())
    )
    for family, rows in found.items():
        table = Table(
            title=family,
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
            expand=True,
        )
        table.add_column("name", no_wrap=True)
        table.add_column("what it is", ratio=1)
        table.add_column("settings", ratio=1, overflow="fold")
        for one in rows:
            table.add_row(one["name"], one["summary"], shown_settings(one))
        screen.print(table, markup=False)
        screen.print()
    if not screen.is_terminal:
        typer.echo("\n".join(line.rstrip() for line in screen.export_text().splitlines()))
