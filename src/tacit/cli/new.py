"""`tacit new`: a commented study file to start from, for built-in data or for your own table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Json, Quiet
from tacit.cli.terminal import console, print_json
from tacit.core.errors import StudyError
from tacit.core.files import replacing

if TYPE_CHECKING:
    from tacit.data.dataset import Dataset
    from tacit.data.encoding import Encoding

CHOSEN = {
    "algorithm": ["fedavg", {"name": "fedprox", "mu": 0.1}],
    "optimiser": {"name": "sgd", "lr": 0.1},
}
GENTLE = {"name": "sgd", "lr": 0.05}  # squared errors have steeper slopes than cross-entropy

StudyFile = Annotated[Path, typer.Argument(help="The file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]
Table = Annotated[str | None, typer.Option(help="A CSV or parquet file to learn from.")]
Target = Annotated[str | None, typer.Option(help="The table's column to predict.")]
Client = Annotated[
    str | None, typer.Option(help="The table's column that says which client a row belongs to.")
]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column of the table to leave out; may be repeated.")
]
Categories = Annotated[
    list[str] | None,
    typer.Option("--category", help="A numeric column that is really a category; may be repeated."),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        "--date",
        metavar="COLUMN=FORMAT",
        help="How a column's dates are written: visit=%d/%m/%Y.",
    ),
]
Task = Annotated[
    str | None,
    typer.Option(help="classification or regression; by default, the target decides."),
]


def new_study(
    path: StudyFile = Path("study.yaml"),
    force: Force = False,
    table: Table = None,
    target: Target = None,
    client: Client = None,
    drop: Drop = None,
    categories: Categories = None,
    dates: Dates = None,
    task: Task = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented study file to start from."""
    if path.exists() and not force:
        raise StudyError(f"{path} exists already; name another file, or overwrite it with --force")
    columns = {
        "target": target,
        "client": client,
        "drop": drop,
        "categories": categories,
        "dates": _formats(dates or []),
        "task": task,
    }
    source = _table_source(table, columns)
    data = _read(source) if source else None
    chosen = CHOSEN
    if source and data:
        chosen = CHOSEN | _choose(data, source)
    _write(path, chosen)
    encoding = data.encoding if data else None
    if as_json:
        description = encoding.describe() if encoding else None
        print_json({"study": str(path), "encoding": description})
    elif not quiet:
        if data and encoding:
            _show(data, encoding)
        typer.echo(f"{path} written; run it with: tacit run {shlex.quote(str(path))}")


def commented_study(name: str, chosen: dict[str, Any] = CHOSEN) -> str:
    """Every setting with its default and what it means; the chosen ones make a small study."""
    import yaml

    from tacit.study.settings import SETTINGS

    example = "local_epochs: {grid: [1, [5, 1, 2]]}"
    lines = [
        "# A study is a grid: any setting may be a list, and every combination is run.",
        f"# To vary a setting that takes a list itself, write for example {example}.",
        yaml.safe_dump({"name": name}, allow_unicode=True).strip(),
    ]
    for key, setting in SETTINGS.items():
        value = chosen.get(key, setting.metadata["default"])
        lines += ["", f"# {setting.metadata['about']}", f"{key}: {_yaml(value)}"]
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """The value in one line."""
    import yaml

    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _formats(dates: list[str]) -> dict[str, str]:
    """The formats of dates by column, from texts such as `visit=%d/%m/%Y`."""
    formats = {}
    for text in dates:
        column, _, format = text.partition("=")
        if not format:
            example = f"--date {column}=%d/%m/%Y"
            raise StudyError(f"{column}: expected the format of its dates too, such as {example}")
        formats[column] = format
    return formats


def _table_source(table: str | None, columns: dict[str, Any]) -> dict[str, Any] | None:
    """The data set's settings for a table, if one is named."""
    settings = {name: value for name, value in columns.items() if value}
    if not table:
        if settings:
            text = "--target, --client and similar options describe a table"
            raise StudyError(f"{text}; name it too: --table my.csv")
        return None
    if "target" not in settings:
        raise StudyError(f"which column of {table} is to be predicted? name it with --target")
    return {"name": "table", "path": table, **settings}


def _read(source: dict[str, Any]) -> Dataset:
    from tacit.data.datasets import Source, data_folder

    try:
        table = Source.build(source)
    except StudyError as error:  # all other settings are texts
        raise StudyError(str(error), parameters=("task",)) from None
    return table.load(data_folder())


def _choose(data: Dataset, source: dict[str, Any]) -> dict[str, Any]:
    """The settings that follow from the table."""
    chosen: dict[str, Any] = {"dataset": source}
    if data.client:
        chosen["clients"] = len(data.owners)
        chosen["split"] = "by_client"
    if data.task == "regression":
        chosen["optimiser"] = GENTLE
    return chosen


def _write(path: Path, chosen: dict[str, Any]) -> None:
    try:
        with replacing(path) as file:
            file.write(commented_study(path.stem, chosen))
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from None


def _show(data: Dataset, encoding: Encoding) -> None:
    """The encoding as a small table, what is predicted, and notes."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("column", "kind", "becomes", "missing"):
        table.add_column(name, overflow="fold")
    for row in encoding.describe():
        table.add_row(*row.values())
    screen = console()
    screen.print(table, highlight=False)
    target = encoding.target.name if encoding.target else ""
    predicted = f"one of {data.classes} classes" if data.classes else "a number"
    features = f"{len(encoding.names)} features"
    screen.print(f"\n{target}: {predicted}; {features}; {_amount(data)}", highlight=False)
    for note in encoding.notes:
        screen.print(f"note: {note}", highlight=False, markup=False)


def _amount(data: Dataset) -> str:
    """How many rows there are, and of how many clients."""
    owners = f" of {len(data.owners)} clients ({data.client})" if data.client else ""
    return f"{len(data.y)} rows{owners} to learn from, {len(data.test_y)} to test on"
