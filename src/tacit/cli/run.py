"""`tacit run`: a study from its file to its report."""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.completion import complete_cluster, complete_device
from tacit.cli.options import Data, Json, Quiet, StudyArguments
from tacit.cli.printed_results import print_results, print_results_json
from tacit.cli.signals import exit_code, terminable
from tacit.cli.study_arguments import admit_own_code_of, read_study, study_home
from tacit.cli.terminal import print_json
from tacit.core.errors import StudyError, TacitError, system_error_text
from tacit.execution.placement import ExecutionOptions

if TYPE_CHECKING:
    from tacit.cli.silence import Silence
    from tacit.core.events import OnEvent
    from tacit.report.results import Results
    from tacit.study.study import Study

Resume = Annotated[Path | None, typer.Option(help="Continue the study in this folder.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The folder for the results; a new one in runs/ if left out."),
]
Device = Annotated[
    str,
    typer.Option(help="cpu, cuda, or several GPUs, cuda:0,cuda:1.", autocompletion=complete_device),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that share the work; chosen automatically if left out."),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads that compute one client; 1 if left out.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="A Ray cluster: ray, HOST:PORT or ray://HOST:PORT.", autocompletion=complete_cluster
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="On a GPU, compute in full float32 instead of TF32.")
]
ALL_DIVERGED = 3  # the exit code
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or the user's share of it
PlanOnly = Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")]


def run_command(
    arguments: StudyArguments = None,
    resume: Resume = None,
    out: Out = None,
    data: Data = None,
    device: Device = "cpu",
    workers: Workers = None,
    threads: Threads = None,
    on: Cluster = None,
    exact: Exact = False,
    plan: PlanOnly = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a study: all its algorithms on all its splits, ending in a report.

    STUDY.yaml is a study file; without one, the built-in study is run. key=value changes a setting,
    as in rounds=5.
    """
    from tacit.cli.progress import display

    if resume and (arguments or out):
        text = "--resume continues the study as it was"
        raise StudyError(f"{text}; it takes no study file, no settings and no --out")
    options = ExecutionOptions(
        data=data, device=device, workers=workers, threads=threads, on=on, exact=exact
    )
    screen = display(quiet=quiet)
    with _stoppable(screen, arguments or [], resume):
        study = _study(resume, arguments or [], quiet=quiet or as_json)
        if plan:
            _show_plan(study, options, as_json=as_json)
            return
        with screen:
            results = _play(study, out, options, screen.on_event)
        _conclude(results, as_json=as_json, quiet=quiet)
    _check_divergence(results)


def _study(resume: Path | None, arguments: list[str], *, quiet: bool) -> Study | Path:
    """The study to run, or the folder of the one to resume."""
    if resume is None:
        return read_study(arguments, quiet=quiet)
    admit_own_code_of(resume)
    return resume


@contextmanager
def _stoppable(screen: Silence, arguments: list[str], resume: Path | None) -> Iterator[None]:
    """Within it, Ctrl-C, SIGTERM and a full disk end the command, which prints how to go on."""
    try:
        with terminable():
            yield
    except KeyboardInterrupt as stop:
        text = "stopped"
        if screen.folder:
            text += f"; continue with: {_continuation(screen.folder, arguments)}"
        print(text, file=sys.stderr)
        raise typer.Exit(exit_code(stop)) from None
    except BrokenPipeError:  # whoever read the output has gone
        raise
    except OSError as error:
        folder = screen.folder or resume
        if not folder:
            raise
        remedy = "make room" if error.errno in FULL else "fix that"
        command = _continuation(str(folder), arguments)
        text = (
            f"{system_error_text(error)}; nothing is lost: {remedy}, and continue with: {command}"
        )
        raise TacitError(text) from error


def _continuation(results: str, arguments: list[str]) -> str:
    """The command that goes on; where the study's own code is found, if that is elsewhere."""
    home = study_home(arguments)
    if home is None:
        return f"tacit run --resume {shlex.quote(results)}"
    folder = Path(results).absolute()
    return f"cd {shlex.quote(str(home))} && tacit run --resume {shlex.quote(str(folder))}"


def _play(
    study: Study | Path, out: Path | None, options: ExecutionOptions, on_event: OnEvent
) -> Results:
    """Runs a study, or continues the one in a folder."""
    import tacit
    from tacit.training.allocator import keep_freed_memory

    keep_freed_memory()  # which changes the whole process, and this one is ours
    if isinstance(study, Path):
        return tacit.resume(study, on_event=on_event, **options)
    return tacit.run(study, out, on_event=on_event, **options)


def _show_plan(study: Study | Path, options: ExecutionOptions, *, as_json: bool) -> None:
    """Prints the plan of a study, or of what is left of the one in a folder."""
    import tacit
    from tacit.core.files import expanded
    from tacit.execution.placement import Placement
    from tacit.execution.runner import plan_rest
    from tacit.study.checks import cautions

    if isinstance(study, Path):
        folder = expanded(study)
        plan = plan_rest(folder, Placement.of(options), data=options.get("data"))
    else:
        plan = tacit.plan(study, **options)
        for text in cautions(study.runs()):
            print(f"note: {text}", file=sys.stderr)
    if as_json:
        print_json(plan.to_dict())
    else:
        typer.echo(str(plan))


def _conclude(results: Results, *, as_json: bool, quiet: bool) -> None:
    """Draws the figures, and prints the results."""
    from tacit.report.figures import write_figures

    write_figures(results)
    if as_json:
        print_results_json(results)
    elif not quiet:
        print_results(results)


def _check_divergence(results: Results) -> None:
    """Ends with an exit code of its own if no run came to an end, so that scripts notice."""
    statuses = results.summary()["status"]
    if not (statuses == "diverged").all():
        return
    runs = "the run" if len(statuses) == 1 else f"all {len(statuses):,} runs"
    text = f"{runs} diverged: numbers grew without bound; try a smaller learning rate"
    print(f"error: {text}, as in optimiser.lr=0.001", file=sys.stderr)
    raise typer.Exit(ALL_DIVERGED)
