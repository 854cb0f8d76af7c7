"""`tacit run`: a study from its file to its report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.completion import complete_cluster, complete_device
from tacit.cli.options import Data, Json, Quiet, StudyArguments
from tacit.cli.signals import Terminated, terminable
from tacit.core.errors import StudyError

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.report.results import Results
    from tacit.study.study import Study

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The folder for the results; by default a new one in runs/."),
]
OPTIONS = (
    "device",
    "workers",
    "threads",
    "on",
    "exact",
    "plan",
    "data",
    "out",
    "resume",
    "json",
    "quiet",
)
MANY_ROWS = 12  # of a comparison; beyond them only the first table is printed


def run_command(
    arguments: StudyArguments = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the study in this folder.")
    ] = None,
    out: Out = None,
    data: Data = None,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda, or several GPUs, cuda:0,cuda:1.", autocompletion=complete_device
        ),
    ] = "cpu",
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the work; by default as pays.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads that compute one client; by default 1.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster: ray, HOST:PORT or ray://HOST:PORT.",
            autocompletion=complete_cluster,
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="On a GPU: float32 to the last digit, no TF32.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be done, and do nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a study: all its algorithms on all its splits, ending in a report.

    STUDY.yaml is a study file, without one it is the built-in study; key=value changes a setting, as in rounds=5.
    """
    from tacit.cli.progress import display
    from tacit.report.plots import write_figures

    screen = display(quiet=quiet)
    options: dict[str, Any] = {
        "data": data,
        "device": device,
        "workers": workers,
        "threads": threads,
    }
    options |= {"on": on, "exact": exact}
    if resume and (arguments or out):
        raise StudyError(
            "--resume goes on with the study as it was; it takes no study file, overrides or --out"
        )
    try:
        with terminable():
            study = None if resume else read_study(arguments or [], quiet=quiet or as_json)
            if plan:
                _show_plan(study or resume, options, as_json=as_json)  # type: ignore[arg-type]
                return
            with screen:
                results = _play(study or resume, out, options | {"on_event": screen.on_event})  # type: ignore[arg-type]
    except KeyboardInterrupt as error:
        where = (
            f"; go on with: tacit run --resume {shlex.quote(screen.folder)}"
            if screen.folder
            else ""
        )
        print(f"stopped{where}", file=sys.stderr)
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None
    write_figures(results)
    if as_json:
        typer.echo(json.dumps(_summary(results), indent=2))
    elif not quiet:
        _show(results)


def _play(study: Study | Path, out: Path | None, options: dict[str, Any]) -> Results:
    """Runs a study, or goes on with the one in a folder. The process is our own, so it may keep freed memory."""
    import tacit
    from tacit.training.allocator import keep_freed_memory

    keep_freed_memory()
    if isinstance(study, Path):
        return tacit.resume(study, **options)
    return tacit.run(study, out, **options)


def _show_plan(study: Study | Path, options: dict[str, Any], *, as_json: bool) -> None:
    """Prints the plan of a study, or of what is left of one in a folder."""
    import tacit
    from tacit.execution.placement import Placement
    from tacit.execution.runner import plan_rest
    from tacit.study.checks import cautions

    if isinstance(study, Path):
        data = options.pop("data")
        found = plan_rest(study.expanduser(), Placement(**options), data=data)
    else:
        found = tacit.plan(study, **options)
        for text in cautions(study.runs()):
            print(f"note: {text}", file=sys.stderr)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


def read_study(arguments: list[str], *, quiet: bool = True) -> Study:
    """The study that the command line names: a file first, if any, then overrides."""
    from tacit.study.study import Study

    files = [text for text in arguments if "=" not in text]
    overrides = [text for text in arguments if "=" in text]
    for key, _, value in (text.partition("=") for text in overrides):
        if key in OPTIONS:
            raise StudyError(
                f"{key} is an option, not a setting of the study: write --{key} {value}".rstrip()
            )
    if "=" in overrides:
        raise StudyError("expected key=value without spaces around the =, such as rounds=5")
    for text in files:
        _check_file(text)
    if len(files) > 1:
        raise StudyError(f"expected one study file, got {' and '.join(files)}")
    if files:
        sys.path.append(
            str(Path(files[0]).resolve().parent)
        )  # modules beside the study, after all others
    elif not quiet:
        print(
            "note: no study file is named, so this is the built-in study; tacit new writes a file",
            file=sys.stderr,
        )
    return Study.from_file(
        files[0] if files else Path(__file__).parent / "built_in.yaml", overrides
    )


def _check_file(text: str) -> None:
    """Refuses what is no file but was probably meant as a setting."""
    from tacit.study.settings import SETTINGS

    if not text:
        raise StudyError("the study file has an empty name")
    if Path(text).exists():
        return
    key, _, value = text.partition(":")
    if key.partition(".")[0] in {*SETTINGS, "name"}:
        raise StudyError(
            f"there is no study file {text}; to change a setting, write {key}={value.strip() or '...'}"
        )


def _summary(results: Results) -> dict[str, Any]:
    rows = json.loads(results.summary().to_json(orient="records"))
    return {"folder": str(results.folder), "report": str(results.report), "runs": rows}


def _show(results: Results) -> None:
    from tacit.cli.terminal import console

    screen, titles = console(), list(results.titles.items())
    long = len(results.table(titles[0][0])) > MANY_ROWS
    for metric, title in titles[:1] if long else titles:
        several = results.seeds > 1
        screen.print(
            f"{title}, mean and deviation over {results.seeds} seeds" if several else title,
            style="bold",
        )
        screen.print(_table(results, metric))
    if long and len(titles) > 1:
        screen.print(
            "in the report: " + "; ".join(title for _, title in titles[1:]), highlight=False
        )
    for one in results.summary().itertuples():
        if one.status == "diverged":
            screen.print(
                f"{one.run} diverged in round {one.round}: its numbers grew without bound",
                highlight=False,
            )
    screen.print(f"\nreport: {results.report}", soft_wrap=True, highlight=False)


def _table(results: Results, metric: str) -> Table:
    from rich.table import Table

    means, deviations = results.table(metric), results.table(metric, "std")
    table = Table(box=None, pad_edge=False)
    table.add_column("method", overflow="fold")
    for column in means.columns:
        table.add_column(str(column), justify="right", overflow="fold")
    for name in means.index:
        cells = zip(means.loc[name], deviations.loc[name], strict=True)
        table.add_row(
            str(name), *(_cell(mean, deviation, results.seeds > 1) for mean, deviation in cells)
        )
    return table


def _cell(mean: float, deviation: float, several: bool) -> str:
    if mean != mean:
        return ""
    return f"{mean:.4f} ± {deviation:.4f}" if several and deviation == deviation else f"{mean:.4f}"
