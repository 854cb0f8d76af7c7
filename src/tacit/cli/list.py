"""`tacit list`: what a study can name, as the registry holds it."""

from __future__ import annotations

import inspect
import io
import json
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from tacit.cli.completion import complete_family
from tacit.cli.options import Json, NamesOnly
from tacit.cli.terminal import console
from tacit.core.errors import StudyError, suggest
from tacit.core.fields import field_types
from tacit.core.registry import Registered

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.cli.method_texts import Rows

FOLDED = 100  # columns, where a table is read in a pipe or a file
WORDS = {None: "null", True: "true", False: "false"}  # as YAML spells them

Family = Annotated[
    str | None,
    typer.Argument(
        help="algorithms, splits, datasets, ...; all of them if left out.",
        autocompletion=complete_family,
    ),
]


def list_methods(
    family: Family = None,
    as_json: Json = False,
    quiet: NamesOnly = False,
) -> None:
    """List algorithms, splits, data sets and everything else a study can name."""
    lists = _chosen(family)
    if as_json:
        typer.echo(json.dumps(lists, indent=2, default=str))
    elif quiet:
        names = [item["name"] for rows in lists.values() for item in rows]
        typer.echo("\n".join(names))
    else:
        _show(lists)


def _chosen(family: str | None) -> dict[str, Rows]:
    """All families with their members, or the one that is named, in the plural or the singular."""
    from tacit.cli.method_texts import read_families

    lists = {**read_families(), "metrics": metric_rows()}
    if family is None:
        return lists
    for name in (f"{family}s", f"{family}es", family):
        if name in lists:
            return {name: lists[name]}
    raise StudyError(f"there is no list of {family!r}; {suggest(family, lists)}")


def metric_rows() -> Rows:
    """The metrics, which are no family: nothing about them can be set."""
    from tacit.training.metrics import METRICS

    rows = []
    for metric in METRICS.values():
        summary = f"For {metric.task}: {metric.about}. Sites merge it {metric.merges}."
        rows.append({"name": metric.name, "summary": summary, "settings": {}, "choices": {}})
    return rows


def row(name: str, cls: type[Registered]) -> dict[str, Any]:
    """A member's name, one-line summary, settings with their defaults, and their choices."""
    first_paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0]
    choices = {}
    for key, kind in field_types(cls).items():
        if get_origin(kind) is Literal:
            choices[key] = list(get_args(kind))
    return {
        "name": name,
        "summary": first_paragraph.replace("\n", " "),
        "settings": {field.name: _default(field) for field in fields(cls)},  # type: ignore[arg-type]
        "choices": choices,
    }


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    return "required"


def shown_settings(item: dict[str, Any]) -> str:
    """Settings as a file would spell them.

    Choices are `weights=samples|uniform`, the default first.
    """
    texts = []
    for key, value in item["settings"].items():
        choices = item["choices"].get(key)
        texts.append(f"{key}={_choices(value, choices) if choices else _spelt(value)}")
    return ", ".join(texts)


def _choices(default: Any, choices: list[Any]) -> str:
    default_first = sorted(choices, key=lambda choice: choice != default)
    return "|".join(map(str, default_first))


def _spelt(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spelt, value))}]"
    if value is None or isinstance(value, bool):
        return WORDS[value]
    return str(value)


def _show(lists: dict[str, list[dict[str, Any]]]) -> None:
    """Prints a table for each family."""
    from rich.console import Console

    screen = console()
    if not screen.is_terminal:  # a table for a file or a pipe, without blanks at the ends of lines
        screen = Console(width=FOLDED, record=True, file=io.StringIO())
    for family, rows in lists.items():
        screen.print(_table(family, rows), markup=False)
        screen.print()
    if not screen.is_terminal:
        lines = screen.export_text().splitlines()
        typer.echo("\n".join(line.rstrip() for line in lines))


def _table(family: str, rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

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
    for item in rows:
        table.add_row(item["name"], item["summary"], shown_settings(item))
    return table
