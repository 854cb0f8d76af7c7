"""`tacit psi`: whom parties have in common, without showing each other the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.completion import complete_group
from tacit.cli.options import Json, Quiet
from tacit.core.errors import StudyError

if TYPE_CHECKING:
    from tacit.vertical.intersection import Intersection

    Outcome = list[tuple[Intersection, Path | None]]  # and the file that each party's rows are in


Files = Annotated[
    list[Path] | None, typer.Argument(metavar="[FILE FILE...]", help="With --local: the tables.")
]
Key = Annotated[
    list[str] | None, typer.Option(help="The column of identifiers; several together if repeated.")
]
Local = Annotated[bool, typer.Option("--local", help="Try it out: all parties in this process.")]
Me = Annotated[str | None, typer.Option(help="Who you are, as in the consortium file.")]
Table = Annotated[Path | None, typer.Option(help="Your table, a CSV or parquet file.")]
ConsortiumFile = Annotated[
    Path | None, typer.Option(help="Its file; else consortium.yaml, or consortium/consortium.yaml.")
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
Learns = Annotated[str, typer.Option(help="Who learns the result: all, or one party's name.")]
SizeOnly = Annotated[bool, typer.Option("--size-only", help="Learn how many, not who.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="For your common rows, else PARTY-common.csv; with --local a folder.",
    ),
]
As = Annotated[
    str | None, typer.Option("--as", help="What the identifiers are, if the columns' names differ.")
]
Group = Annotated[str, typer.Option(help="See tacit list groups.", autocompletion=complete_group)]
Unicode = Annotated[str, typer.Option(help="Forms that are the same: nfc, nfkc or keep.")]
Case = Annotated[str, typer.Option(help="Capitals: fold or keep.")]
Spaces = Annotated[str, typer.Option(help="Spaces: collapse, remove or keep.")]
Most = Annotated[
    int | None, typer.Option("--accept-at-most", min=0, help="Refuse a party that brings more.")
]
Patience = Annotated[
    float, typer.Option(min=1, help="Seconds to wait for a party that is not there.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="By default one per core.")]


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
    learns: Learns = "all",
    size_only: SizeOnly = False,
    out: Out = None,
    column: As = None,
    group: Group = "ristretto255",
    unicode: Unicode = "nfc",
    case: Case = "fold",
    spaces: Spaces = "collapse",
    most: Most = None,
    patience: Patience = 600.0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find whom parties have in common, without showing each other the rest.

    Each party runs it with its own table, and gets its rows of the common people, in the same order as the others.
    """
    if not key:
        raise StudyError("name the column that identifies people: --key nin")
    settings: dict[str, Any] = {
        "learns": learns,
        "size_only": size_only,
        "column": column,
        "group": group,
    }
    settings |= {
        "key": key,
        "spelling": {"unicode": unicode, "case": case, "spaces": spaces},
        "threads": threads,
    }
    own = {
        "party": party,
        "consortium": consortium,
        "others": others or (),
        "listen": listen,
        "connect": connect,
    }
    if local and (any(own.values()) or data or most):
        raise StudyError(
            "--local takes tables alone, as in: tacit psi --local a.csv b.csv --key nin"
        )
    if files and not local:
        raise StudyError(f"{files[0]}: name your table with --data, or try it out with --local")
    settings |= {} if local else own | {"patience": patience, "most": most}
    found = _compare(files if local else data, out, settings, quiet=quiet)
    if as_json:
        typer.echo(json.dumps([_described(one, file) for one, file in found], indent=2))
    elif not quiet:
        _say(found, learns=learns, size_only=size_only)


def _compare(tables: Any, out: Path | None, settings: dict[str, Any], *, quiet: bool) -> Outcome:
    """With progress, until it is done or the user stops it."""
    from tacit.cli.signals import Terminated, terminable
    from tacit.cli.steps import Steps

    try:
        with Steps(quiet=quiet) as steps, terminable():
            settings["on_event"] = steps.on_event
            return (
                _take_part(tables, out, settings)
                if "party" in settings
                else _try_out(tables or [], out, settings)
            )
    except KeyboardInterrupt as error:
        typer.echo(
            "stopped; parties that were connected know" if "party" in settings else "stopped",
            err=True,
        )
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None


def _take_part(data: Path | None, out: Path | None, settings: dict[str, Any]) -> Outcome:
    """This party's side; its rows take their place once all parties have theirs."""
    from tacit.core.files import Staged
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import psi

    if settings["party"] is None or data is None:
        raise StudyError(
            "name yourself and your table, --party alice --data a.csv, or try it out with --local"
        )
    out = out or Path(f"{settings['party']}-common.csv")
    _check_out(out, data)
    table = read_table(data.expanduser(), as_text=True)

    with Staged(out) as file:

        def conclude(found: Intersection) -> None:
            if found.rows is not None:
                file.write(lambda stream: _write(found.of(table), stream, out.suffix))
                written.append(found)

        written: list[Intersection] = []
        found = psi(
            table,
            conclude=conclude,
            publish=lambda: file.publish() if written else None,
            **settings,
        )
    return [(found, out if found.rows is not None else None)]


def _try_out(files: list[Path], out: Path | None, settings: dict[str, Any]) -> Outcome:
    """All parties, each called as its file is."""
    from tacit.core.files import replacing
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import psi

    if len(files) < 2:
        raise StudyError("name two tables or more: tacit psi --local a.csv b.csv --key nin")
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        names = [f"{name}-{place}" for place, name in enumerate(names, 1)]
    tables = {
        name: read_table(file.expanduser(), as_text=True)
        for name, file in zip(names, files, strict=True)
    }
    outs = {name: (out or Path()) / f"{name}-tryout.csv" for name in names}
    for file in files:
        for place in outs.values():
            _check_out(place, file)
    results = psi(tables, **settings)
    for name, found in results.items():
        if found.rows is not None:
            with replacing(outs[name], "wb") as stream:
                _write(found.of(tables[name]), stream, outs[name].suffix)
    return [
        (found, outs[name] if found.rows is not None else None) for name, found in results.items()
    ]


def _check_out(out: Path, data: Path) -> None:
    if out.suffix not in (".csv", ".parquet"):
        raise StudyError(f"{out}: expected a name that ends in .csv or .parquet")
    if out.is_dir():
        raise StudyError(f"{out} is a folder; name a file")
    if out.resolve() == data.expanduser().resolve():
        raise StudyError(f"{out} is the table itself; name another file with --out")


def _write(rows: Any, stream: Any, suffix: str) -> None:
    if suffix == ".parquet":
        rows.to_parquet(stream, index=False)
    else:
        rows.to_csv(stream, index=False)


def _described(found: Intersection, file: Path | None) -> dict[str, Any]:
    keys = (
        "party",
        "size",
        "total",
        "missing",
        "repeated",
        "session",
        "sent",
        "received",
        "seconds",
    )
    return {
        **{key: getattr(found, key) for key in keys},
        "sizes": dict(found.sizes),
        "file": None if file is None else str(file),
    }


def _say(found: Outcome, *, learns: str, size_only: bool) -> None:
    first = found[0][0]
    names = " and ".join(first.sizes) if len(first.sizes) == 2 else ", ".join(first.sizes)
    size = next((one.size for one, _ in found if one.size is not None), None)
    unknown = f"{names} were compared; {learns} has learnt the result"
    typer.echo(unknown if size is None else f"{names} have {size:,} in common")
    if size == 0:
        typer.echo(
            "if that is a surprise: are they written alike? 007 and 7 differ, and so do 7.0 and 7 in a CSV"
        )
    for one, file in found:
        left = [
            f"{count:,} {what}"
            for count, what in ((one.missing, "without"), (one.repeated, "repeated"))
            if count
        ]
        but = f" ({', '.join(left)})" if left else ""
        brought = f"{one.sizes[one.party]:,} identifiers in {one.total:,} rows{but}"
        typer.echo(
            f"{one.party}: {brought}; sent {_bytes(one.sent)}, received {_bytes(one.received)}"
        )
        if file is not None:
            order = ", in the same order as the others'" if learns == "all" else ""
            typer.echo(f"{one.party}: {file} holds its common rows{order}")
    typer.echo(
        f"session {first.session[:16]}, {first.seconds:.1f} s; {_who_learns(first, learns, size_only)}"
    )


def _who_learns(found: Intersection, learns: str, size_only: bool) -> str:
    who = "each party has" if learns == "all" else f"{learns} has"
    what = "how many are common" if size_only else "which of its rows are common"
    if len(found.sizes) == 2:
        return f"{who} learnt {what}, and all know how many identifiers each brought"
    names = list(found.sizes)
    collector = names[0] if learns == "all" else learns
    more = f"{collector}, which compared, also how many any of them have in common"
    judge = (
        ""
        if size_only or learns == "all"
        else f", and {names[names.index(collector) - 1]} how many all have"
    )
    return f"{who} learnt {what}, and all know how many identifiers each brought; {more}{judge}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
