"""`tacit splits`: who would hold which data, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import Data, Json, Quiet, StudyArguments
from tacit.cli.study_arguments import read_study
from tacit.cli.terminal import console, print_json
from tacit.core.errors import StudyError

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.records.portrait import Portrait

Out = Annotated[
    Path | None, typer.Option(help="The folder for the pictures; splits/<name> if left out.")
]
Parties = Annotated[
    int | None, typer.Option(help="Also divide the columns among this many parties.")
]
Overlap = Annotated[float, typer.Option(help="The share of people known to all parties.")]


def splits_command(
    arguments: StudyArguments = None,
    out: Out = None,
    data: Data = None,
    parties: Parties = None,
    overlap: Overlap = 1.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw how a study divides its data: labels, sizes and pictures per client, columns per party.

    STUDY.yaml is a study file; without one, the built-in study is shown. key=value changes a
    setting, as in split=iid.
    """
    from tacit.report.splits import Splits

    study = read_study(arguments or [])
    if parties is None and overlap != 1.0:
        raise StudyError(
            "--overlap is for parties with different columns; add --parties, such as --parties 2"
        )
    splits = Splits(study, data)
    folder = out or Path("splits") / study.name
    files = splits.write(folder, parties=parties, overlap=overlap)
    if as_json:
        portraits = [portrait.to_dict() for portrait in splits.portraits]
        print_json({"splits": portraits, "files": [str(path) for path in files]})
    elif not quiet:
        _show(splits.portraits)
        pictures = [str(path) for path in files if path.suffix == ".png"]
        typer.echo(f"pictures: {', '.join(pictures)}")


def _show(portraits: list[Portrait]) -> None:
    screen = console()
    for portrait in portraits:
        screen.print(_table(portrait))
        if portrait.left_out:
            screen.print(f"and {portrait.left_out} more clients")


def _table(portrait: Portrait) -> Table:
    """A row for each client: how much it holds, and how many of the labels."""
    from rich.table import Table

    title = f"{portrait.dataset}, {portrait.split}, seed {portrait.seed}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    noisy = any(portrait.noise)
    table.add_column("client", justify="left")
    for heading in ("train", "local test", "labels held"):
        table.add_column(heading, justify="right")
    if noisy:
        table.add_column("noise", justify="right")
    for client, name in enumerate(portrait.clients):
        train = portrait.train[client]
        held = sum(count > 0 for count in train)
        cells = [
            str(sum(train)),
            str(sum(portrait.test[client])),
            f"{held} of {len(portrait.labels)}",
        ]
        if noisy:
            cells.append(f"{portrait.noise[client]:.3g}")
        table.add_row(name, *cells)
    return table
