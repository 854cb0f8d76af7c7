"""The command `tacit`.

Exit codes: 0 done, 1 a bug, 2 something the user can mend, 130 Ctrl-C, 141 the reader has gone, 143 SIGTERM.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import tacit
from tacit.cli.cert import cert_app
from tacit.cli.fuse import fuse_command
from tacit.cli.list import list_methods
from tacit.cli.new import new_study
from tacit.cli.psi import psi_command
from tacit.cli.report import report_command
from tacit.cli.run import run_command
from tacit.cli.splits import splits_command
from tacit.cli.usage import Complaint, explain
from tacit.cli.watch import watch_command
from tacit.core.errors import TacitError

app = typer.Typer(
    name="tacit",
    help="Learn from each other's data without showing it to each other.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command)
app.command("report")(report_command)
app.command("watch")(watch_command)
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
    """Runs the command line; an error that the user can mend is one line, never a traceback."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # modules in the current folder, as `python -m tacit` finds them
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a letter still gets the rest
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    sys.exit(code)


def _run() -> int:
    """The exit code."""
    try:
        return app(prog_name="tacit", standalone_mode=False) or 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer makes it a 1
            return _reader_gone()
        raise
    except Complaint as error:
        return _refuse(explain(error))
    except TacitError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:  # no permission, no space left
        return _refuse(
            f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        )


def _refuse(text: str) -> int:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return 2


def _reader_gone() -> int:
    """The reader of our output, such as head, has gone; nothing more can be said to it, not even at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    return 141
