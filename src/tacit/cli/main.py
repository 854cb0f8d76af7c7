"""The command `tacit`.

Exit codes:
0    done
1    a bug in tacit
2    something that the user can fix
3    all runs of the study diverged
130  stopped by Ctrl-C
141  the reader of the output has gone
143  stopped by SIGTERM
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import tacit
from tacit.cli.cert import cert_app
from tacit.cli.flags import FlagGroup
from tacit.cli.fuse import fuse_command
from tacit.cli.list import list_methods
from tacit.cli.new import new_study
from tacit.cli.predict import predict_command
from tacit.cli.psi import psi_command
from tacit.cli.report import report_command
from tacit.cli.run import run_command
from tacit.cli.splits import splits_command
from tacit.cli.usage import Complaint, explain
from tacit.cli.watch import watch_command
from tacit.core.errors import TacitError, system_error_text

app = typer.Typer(
    name="tacit",
    cls=FlagGroup,
    help="Learn from each other's data without showing it to each other.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command)
app.command("report")(report_command)
app.command("watch")(watch_command)
app.command("predict")(predict_command)
app.command("splits")(splits_command)
app.command("fuse")(fuse_command)
app.add_typer(cert_app, name="cert")
app.command("psi")(psi_command)
app.command("list")(list_methods)
app.command("new")(new_study)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
    ),
]


@app.callback(invoke_without_command=True)
def options(context: typer.Context, version: Version = False) -> None:  # noqa: ARG001  (its callback acts)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Runs the command line; an error that the user can fix is one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a letter still gets the rest
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    sys.exit(code)


def _run() -> int:
    """Runs the command, and gives its exit code."""
    try:
        return app(prog_name="tacit", standalone_mode=False) or 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer makes it a 1
            return _reader_gone()
        raise
    except Complaint as error:
        return _refuse(explain(error))
    except TacitError as error:
        return _refuse_each(error) if len(error.details) > 1 else _refuse(str(error))
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:  # no permission, no space left
        return _refuse(system_error_text(error))


def _refuse(text: str) -> int:
    line = " ".join(text.split())
    print(f"error: {line}", file=sys.stderr)
    return 2


def _refuse_each(error: TacitError) -> int:
    """What an error says first, and in a line of its own each complaint that it sums up."""
    code = _refuse(f"{error.head}:")
    for detail in error.details:
        print(f"  {detail}", file=sys.stderr)
    return code


def _reader_gone() -> int:
    """The exit code where the reader of our output, such as head, has gone.

    Nothing more can be said to it, so what is still to be printed goes nowhere, even at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    return 141
