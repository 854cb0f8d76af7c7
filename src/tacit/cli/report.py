"""`tacit report`: the page, tables and pictures of a study's folder, made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    folder: Annotated[Path, typer.Argument(help="A study's folder, finished or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the files' names for machines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Write the report, the tables and the figures of a study, also of one that is still going."""
    from tacit.engines.results import Results
    from tacit.report.html import write_report
    from tacit.report.plots import write_figures

    results = Results(folder)
    results.write_tables()
    write_report(results)
    figures = write_figures(results)
    if as_json:
        typer.echo(json.dumps({"report": str(results.report), "figures": [str(path) for path in figures]}, indent=2))
    elif not quiet:
        typer.echo(f"figures: {results.folder / 'figures'}\nreport: {results.report}")
