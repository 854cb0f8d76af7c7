"""`tacit new`: a commented study file to start from, for the built-in data or for a table of one's own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Json, Quiet
from tacit.core.errors import StudyError
from tacit.core.files import replacing

if TYPE_CHECKING:
    from tacit.data.dataset import Dataset
    from tacit.data.encoding import Encoding

CHOSEN = {
    "algorithm": ["fedavg", {"name": "fedprox", "mu": 0.1}],
    "optimiser": {"name": "sgd", "lr": 0.1},
}
GENTLE = {
    "name": "sgd",
    "lr": 0.05,
}  # the slopes of squared errors are steeper than those of cross-entropy


def new_study(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    table: Annotated[str | None, typer.Option(help="A CSV or parquet file to learn from.")] = None,
    target: Annotated[str | None, typer.Option(help="The table's column to predict.")] = None,
    client: Annotated[
        str | None, typer.Option(help="The table's column that says whose row it is.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column of the table to leave out; may be repeated.")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="A numeric column that is really a category; may be repeated."),
    ] = None,
    date: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=FORMAT", help="How a column's dates are written: visit=%d/%m/%Y."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="classification or regression; by default the target decides."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented study file to start from."""
    if path.exists() and not force:
        raise StudyError(f"{path} exists already; name another file, or overwrite it with --force")
    if (target or client or drop or category or date or task) and not table:
        raise StudyError(
            "--target, --client and the like are about a table; name it too: --table my.csv"
        )
    if table and not target:
        raise StudyError(f"which column of {table} is to be predicted? name it with --target")
    dates = dict(one.partition("=")[::2] for one in date or ())
    wanted: dict[str, Any] = {
        "path": table,
        "target": target,
        "client": client,
        "drop": drop,
        "categories": category,
    }
    wanted |= {"dates": dates, "task": task}
    settings = {"name": "table"} | {key: value for key, value in wanted.items() if value}
    data = _read(settings) if table else None
    chosen = CHOSEN | (_choose(data, settings) if data else {})
    try:
        with replacing(path) as file:
            file.write(commented_study(path.stem, chosen))
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from None
    encoding = data.encoding if data else None
    if as_json:
        typer.echo(
            json.dumps(
                {"study": str(path), "encoding": encoding.describe() if encoding else None},
                indent=2,
            )
        )
    elif not quiet:
        if data and encoding:
            _show(data, encoding)
        typer.echo(f"{path} written; run it with: tacit run {shlex.quote(str(path))}")


def commented_study(name: str, chosen: dict[str, Any] = CHOSEN) -> str:
    """Every setting with its default and what it means; the chosen ones make a small study."""
    import yaml

    from tacit.study.settings import SETTINGS

    lines = [
        "# A study is a grid: any setting may be a list, and the product of the lists is run.",
        "# A setting that takes a list itself, such as local_epochs: [5, 1, 2], varies as {grid: [1, [5, 1, 2]]}.",
        yaml.safe_dump({"name": name}, allow_unicode=True).strip(),
    ]
    for key, item in SETTINGS.items():
        value = chosen.get(key, item.metadata["default"])
        text = yaml.safe_dump(
            value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
        )
        text = text.removesuffix("\n").removesuffix("\n...")
        lines += ["", f"# {item.metadata['about']}", f"{key}: {text}"]
    return "\n".join(lines) + "\n"


def _read(settings: dict[str, Any]) -> Dataset:
    from tacit.data.datasets import Source, data_folder

    return Source.build(settings).load(data_folder())


def _choose(data: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that follow from the table."""
    chosen: dict[str, Any] = {"dataset": settings}
    if data.client:
        chosen |= {"clients": len(data.owners), "split": "by_client"}
    return chosen | ({"optimiser": GENTLE} if data.task == "regression" else {})


def _show(data: Dataset, encoding: Encoding) -> None:
    """The encoding as a small table."""
    from rich.table import Table

    from tacit.cli.terminal import console

    shown = Table(box=None, pad_edge=False)
    for name in ("column", "kind", "becomes", "missing"):
        shown.add_column(name, overflow="fold")
    for row in encoding.describe():
        shown.add_row(*row.values())
    screen = console()
    screen.print(shown, highlight=False)
    predicted = f"one of {data.classes} classes" if data.classes else "a number"
    target = encoding.target.name if encoding.target else ""
    owners = f" of {len(data.owners)} clients ({data.client})" if data.client else ""
    rows = f"{len(data.y)} rows to learn from{owners}, {len(data.test_y)} to test on"
    screen.print(
        f"\n{target}: {predicted}; {len(encoding.names)} features; {rows}", highlight=False
    )
    for note in encoding.notes:
        screen.print(f"note: {note}", highlight=False)
