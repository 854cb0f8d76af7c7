"""`tacit psi`: the people known to all parties, without showing each other anybody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.completion import complete_group
from tacit.cli.options import Json, Quiet
from tacit.cli.psi_outcome import Outcome, print_outcomes, print_outcomes_json
from tacit.core.errors import StudyError

if TYPE_CHECKING:
    from tacit.cli.steps import Steps
    from tacit.vertical.intersection import Intersection

Files = Annotated[
    list[Path] | None, typer.Argument(metavar="[FILE FILE...]", help="With --local: the tables.")
]


def _known_group(group: str) -> str:
    """The group, which has to be one of tacit's: a party runs nobody's own code."""
    if ":" in group:
        raise StudyError(f"--group: {group} is no name; see tacit list groups")
    return group


Key = Annotated[
    list[str] | None, typer.Option(help="The column of identifiers; several together if repeated.")
]
Local = Annotated[bool, typer.Option("--local", help="Try it out: all parties in this process.")]
Me = Annotated[str | None, typer.Option(help="Who you are, as in the consortium file.")]
Table = Annotated[Path | None, typer.Option(help="Your table, a CSV or parquet file.")]
ConsortiumFile = Annotated[
    Path | None,
    typer.Option(help="The consortium's file; consortium.yaml here or in consortium/ if left out."),
]
Others = Annotated[
    list[str] | None, typer.Option("--with", help="Compare with this party only; may be repeated.")
]
Listen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Wait for the other party here.")
]
Connect = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where the other party waits.")
]
Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The HTTP proxy to connect through; HTTPS_PROXY if left out, none for none.",
    ),
]
Learns = Annotated[str, typer.Option(help="Who learns the result: all, or one party's name.")]
SizeOnly = Annotated[bool, typer.Option("--size-only", help="Learn how many people, not who.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="The file for your rows, PARTY-common.csv if left out; with --local, a folder.",
    ),
]
As = Annotated[
    str | None,
    typer.Option("--as", help="A name for the identifiers, if the columns' names differ."),
]
Group = Annotated[
    str,
    typer.Option(
        help="The group used for encryption; see tacit list groups.",
        autocompletion=complete_group,
        callback=_known_group,
    ),
]
Unicode = Annotated[
    str, typer.Option(help="Unicode forms that count as the same: nfc, nfkc or keep.")
]
Case = Annotated[str, typer.Option(help="Capital letters: fold (ignore) or keep.")]
Spaces = Annotated[str, typer.Option(help="Spaces: collapse, remove or keep.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--accept-at-most",
        min=0,
        help="Refuse a party with more identifiers; ten times yours, or 1,000, if left out.",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        help="Your log of sessions; PARTY-sessions.jsonl beside the consortium's file if left out."
    ),
]
Patience = Annotated[
    float, typer.Option(min=1, help="Seconds to wait for a party that is not there.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads that compute; one per core if left out.")
]


def psi_command(
    files: Files = None,
    key: Key = None,
    local: Local = False,
    party: Me = None,
    data: Table = None,
    consortium: ConsortiumFile = None,
    others: Others = None,
    listen: Listen = None,
    connect: Connect = None,
    proxy: Proxy = None,
    learns: Learns = "all",
    size_only: SizeOnly = False,
    out: Out = None,
    column: As = None,
    group: Group = "x25519",
    unicode: Unicode = "nfc",
    case: Case = "fold",
    spaces: Spaces = "collapse",
    most: Most = None,
    log: Log = None,
    patience: Patience = 600.0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the people known to all parties, without showing each other anybody else.

    Each party runs it with its own table, and gets its rows of the people that all parties know, in
    the same order as the others.
    """
    settings: dict[str, Any] = {
        "key": _checked_key(key),
        "column": column,
        "group": group,
        "spelling": {"unicode": unicode, "case": case, "spaces": spaces},
        "learns": learns,
        "size_only": size_only,
        "threads": threads,
    }
    network = {
        "party": party,
        "consortium": consortium,
        "others": others or (),
        "listen": listen,
        "connect": connect,
        "proxy": proxy,
        "most": most,
        "log": log,
        "patience": patience,
    }
    settings |= _settings_of_one(local, files, data, network)
    outcomes = _compare(files or data, out, settings, quiet=quiet)
    if as_json:
        print_outcomes_json(outcomes)
    elif not quiet:
        print_outcomes(outcomes, learns=learns, size_only=size_only)


def _checked_key(key: list[str] | None) -> list[str]:
    if not key:
        raise StudyError("name the column that identifies people: --key nin")
    return key


def _settings_of_one(
    local: bool, files: list[Path] | None, data: Path | None, network: dict[str, Any]
) -> dict[str, Any]:
    """The settings of one party, where this process is one."""
    if local:
        _check_local(data, network)
        return {}
    _check_networked(files)
    return network


def _check_local(data: Path | None, network: dict[str, Any]) -> None:
    """Refuses options of a party where all parties are in this process."""
    stated = [name for name, value in network.items() if value not in (None, ())]
    stated.remove("patience")  # always has a value
    if data or stated:
        example = "tacit psi --local a.csv b.csv --key nin"
        raise StudyError(f"--local takes only tables, as in: {example}")


def _check_networked(files: list[Path] | None) -> None:
    """Refuses tables of several parties where this process is one party."""
    if files:
        remedy = "name your table with --data, or try it out with --local"
        raise StudyError(f"{files[0]}: {remedy}")


def _compare(
    tables: Any, out: Path | None, settings: dict[str, Any], *, quiet: bool
) -> list[Outcome]:
    """Compares with progress, until it is done or the user stops it.

    With a party among the settings it takes part over the network, else it tries out all parties.
    """
    from tacit.cli.signals import exit_code, terminable
    from tacit.cli.steps import Steps

    networked = "party" in settings
    try:
        with Steps(quiet=quiet) as steps, terminable():
            heard = {**settings, "on_event": steps.on_event}
            if networked:
                heard["passphrase"] = _asking(steps)
                return _take_part(tables, out, heard)
            return _try_out(tables, out, heard)
    except KeyboardInterrupt as stop:
        text = "stopped; parties that were connected have been told" if networked else "stopped"
        typer.echo(text, err=True)
        raise typer.Exit(exit_code(stop)) from None


def _asking(steps: Steps) -> Callable[[str], str]:
    """Asks for the passphrase of this party's key, while no progress is shown."""
    from tacit.channel.passphrases import ask

    def asked(question: str) -> str:
        with steps.paused():
            return ask(question)

    return asked


def _take_part(data: Path | None, out: Path | None, settings: dict[str, Any]) -> list[Outcome]:
    """This party's side; its file of rows appears once all parties have theirs."""
    from tacit.cli.psi_files import RowFiles, check_replaceable, check_rows_file
    from tacit.core.files import expanded
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import take_part

    if settings["party"] is None or data is None:
        text = "name your party and your table, --party alice --data a.csv"
        raise StudyError(f"{text}, or try it out with --local")
    out = out or Path(f"{settings['party']}-common.csv")
    check_rows_file(out, data)
    check_replaceable(out)
    table = read_table(expanded(data), as_text=True)
    with RowFiles(out, table) as files:
        result = take_part(table, conclude=files.conclude, publish=files.publish, **settings)
    return [Outcome(result, out if result.rows is not None else None)]


def _try_out(files: list[Path] | None, out: Path | None, settings: dict[str, Any]) -> list[Outcome]:
    """All parties, each named after its file."""
    from tacit.cli.psi_files import check_rows_file
    from tacit.core.files import expanded
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import compare_tables

    if not files or len(files) < 2:
        raise StudyError("name two tables or more: tacit psi --local a.csv b.csv --key nin")
    parties = _named(files)
    tables = {}
    for name, file in parties.items():
        tables[name] = read_table(expanded(file), as_text=True)
    folder = out or Path()
    targets = {name: folder / f"{name}-tryout.csv" for name in parties}
    for file in files:
        for target in targets.values():
            check_rows_file(target, file)
    results = compare_tables(tables, **settings)
    return [_write_rows(results[name], tables[name], targets[name]) for name in parties]


def _named(files: list[Path]) -> dict[str, Path]:
    """The files by the names of their parties, numbered where two files have the same name."""
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        names = [f"{name}-{number}" for number, name in enumerate(names, 1)]
    return dict(zip(names, files, strict=True))


def _write_rows(result: Intersection, table: Any, target: Path) -> Outcome:
    """Writes the rows that a party has learnt, if it has learnt any."""
    from tacit.cli.psi_files import write_rows

    if result.rows is None:
        return Outcome(result, None)
    write_rows(result.of(table), target)
    return Outcome(result, target)
