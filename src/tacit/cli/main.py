"""The command `tacit`. Exit codes: 0 done, 1 a bug, 2 something the user can mend, 130 stopped by Ctrl-C."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import tacit
from tacit.cli.list import list_methods
from tacit.cli.new import new_study
from tacit.cli.report import report_command
from tacit.cli.run import run_command
from tacit.cli.splits import splits_command
from tacit.cli.watch import watch_command
from tacit.core.errors import TacitError

app = typer.Typer(
    name="tacit",
    help="Learn from each other's data without showing it to each other.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command)
app.command("report")(report_command)
app.command("watch")(watch_command)
app.command("splits")(splits_command)
app.command("list")(list_methods)
app.command("new")(new_study)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
]


@app.callback()
def options(version: Version = False) -> None: ...


def main() -> None:
    """Runs the command line; an error that the user can mend is one line, never a traceback."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # modules beside the study, as `python -m tacit` finds them
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter still gets the rest
    try:
        app()
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # no permission, no space left
        print(f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        sys.exit(2)
