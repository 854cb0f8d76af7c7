"""`tacit report`: the page, tables and pictures of a study's folder, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import Json, Quiet
from tacit.cli.terminal import print_json

StudyFolder = Annotated[Path, typer.Argument(help="A study's folder, finished or not.")]


def report_command(
    folder: StudyFolder,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the report, the tables and the figures of a study, even if it is still running."""
    from tacit.report.results import Results

    results = Results(folder)
    results.write_report()
    figures = results.folder / "figures"
    if as_json:
        files = [str(path) for path in sorted(figures.iterdir())]
        print_json({"report": str(results.report), "figures": files})
    elif not quiet:
        typer.echo(f"figures: {figures}")
        typer.echo(f"report: {results.report}")
