"""`tacit list`: what there is, straight from the registry."""

from __future__ import annotations

import importlib
import inspect
import json
from dataclasses import MISSING, fields
from typing import Annotated, Any

import typer

from tacit.core.errors import StudyError, suggest
from tacit.core.registry import FAMILIES, Registered

# The modules that define the families; each family finds its own members.
HOMES = (
    "tacit.federated.algorithm",
    "tacit.federated.combine.combiner",
    "tacit.federated.selection",
    "tacit.federated.behaviour",
    "tacit.federated.wire.stage",
    "tacit.federated.wire.attackers",
    "tacit.data.splits.split",
    "tacit.data.splits.columns",
    "tacit.data.datasets",
    "tacit.models.model",
    "tacit.training.optimisers",
    "tacit.training.schedules",
)


def list_methods(
    family: Annotated[
        str | None, typer.Argument(help="algorithms, splits, datasets, ...; all of them if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List algorithms, splits, data sets and everything else a study can name."""
    known = families()
    family = f"{family}s" if family is not None and f"{family}s" in known else family
    if family is not None and family not in known:
        raise StudyError(f"there is no list of {family!r}; {suggest(family, known)}")
    chosen = {family: known[family]} if family else known
    found = {name: [row(name_, cls) for name_, cls in base.known().items()] for name, base in chosen.items()}
    if as_json:
        typer.echo(json.dumps(found, indent=2, default=str))
        return
    _show(found)


def families() -> dict[str, type[Registered]]:
    """Every family by name."""
    for home in HOMES:
        importlib.import_module(home)
    ours = {name: base for name, base in FAMILIES.items() if base.__module__ in HOMES}
    return dict(sorted(ours.items(), key=lambda item: HOMES.index(item[1].__module__)))


def row(name: str, cls: type[Registered]) -> dict[str, Any]:
    """A member's name, one-line summary and settings."""
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    settings = {field.name: _default(field) for field in fields(cls)}  # type: ignore[arg-type]
    return {"name": name, "summary": summary, "settings": settings}


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else "required"


def _show(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table

    from tacit.cli.terminal import console

    screen = console()
    for family, rows in found.items():
        table = Table(title=family, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for heading in ("name", "what it is", "settings"):
            table.add_column(heading, no_wrap=heading == "name")
        for one in rows:
            table.add_row(one["name"], one["summary"], ", ".join(f"{k}={v}" for k, v in one["settings"].items()))
        screen.print(table)
        screen.print()
