"""`tacit splits`: who would hold what, before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import Data, Json, Quiet, StudyArguments
from tacit.cli.run import read_study
from tacit.core.errors import StudyError

if TYPE_CHECKING:
    from tacit.records.portrait import Portrait


def splits_command(
    arguments: StudyArguments = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the pictures; by default splits/<name>.")
    ] = None,
    data: Data = None,
    parties: Annotated[
        int | None, typer.Option(help="Also divide the columns among so many parties.")
    ] = None,
    overlap: Annotated[
        float, typer.Option(help="The share of people whom all parties know.")
    ] = 1.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw how a study divides its data: labels and sizes per client, example pictures, columns per party.

    STUDY.yaml is a study file, without one it is the built-in study; key=value changes a setting, as in split=iid.
    """
    from tacit.report.splits import Splits

    study = read_study(arguments or [])
    if parties is None and overlap != 1.0:
        raise StudyError("--overlap is about parties with different columns; add --parties 2, say")
    found = Splits(study, data)
    folder = out or Path("splits") / study.name
    files = found.write(folder, parties=parties, overlap=overlap)
    if as_json:
        counts = [portrait.to_dict() for portrait in found.portraits]
        typer.echo(json.dumps({"splits": counts, "files": [str(path) for path in files]}, indent=2))
    elif not quiet:
        _show(found.portraits)
        typer.echo("pictures: " + ", ".join(str(path) for path in files if path.suffix == ".png"))


def _show(portraits: list[Portrait]) -> None:
    from rich.table import Table

    from tacit.cli.terminal import console

    screen = console()
    for one in portraits:
        table = Table(
            title=f"{one.dataset}, {one.split}, seed {one.seed}",
            title_justify="left",
            box=None,
            pad_edge=False,
        )
        noisy = any(one.noise)
        for heading in (
            "client",
            "train",
            "local test",
            "labels held",
            *(["noise"] if noisy else []),
        ):
            table.add_column(heading, justify="left" if heading == "client" else "right")
        for k, name in enumerate(one.clients):
            held = sum(count > 0 for count in one.train[k])
            sizes = (str(sum(one.train[k])), str(sum(one.test[k])), f"{held} of {len(one.labels)}")
            table.add_row(name, *sizes, *([f"{one.noise[k]:.3g}"] if noisy else []))
        screen.print(table)
        if one.left_out:
            screen.print(f"and {one.left_out} clients more")
