"""`tacit report`: the page, tables and pictures of a study's folder, made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import Json, Quiet


def report_command(
    folder: Annotated[Path, typer.Argument(help="A study's folder, finished or not.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the report, the tables and the figures of a study, also of one that is still going."""
    from tacit.report.results import Results

    results = Results(folder)
    results.write_report()
    if as_json:
        figures = [str(path) for path in sorted((results.folder / "figures").iterdir())]
        typer.echo(json.dumps({"report": str(results.report), "figures": figures}, indent=2))
    elif not quiet:
        typer.echo(f"figures: {results.folder / 'figures'}\nreport: {results.report}")
