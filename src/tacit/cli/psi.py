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


def psi_command(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE FILE...]", help="With --local: tables.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="The column with the identifiers; several together if repeated.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Try it out: all parties in this process.")] = False,
    party: Annotated[str | None, typer.Option(help="Who you are, as in the consortium file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your table, a CSV or parquet file.")] = None,
    consortium: Annotated[
        Path | None, typer.Option(help="The consortium file; else consortium.yaml or consortium/consortium.yaml.")
    ] = None,
    others: Annotated[
        list[str] | None, typer.Option("--with", help="Compare with this party only; may be repeated.")
    ] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Wait for the other party here.")] = None,
    connect: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the other party waits.")] = None,
    learns: Annotated[str, typer.Option(help="Who learns the result: all, or one party's name.")] = "all",
    size_only: Annotated[bool, typer.Option("--size-only", help="Learn how many, not who.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="For your common rows: a file, PARTY-common.csv; with --local a folder."),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--as", help="What the identifiers are, where your columns' names differ.")
    ] = None,
    group: Annotated[str, typer.Option(help="tacit list groups.", autocompletion=complete_group)] = "ristretto255",
    unicode: Annotated[str, typer.Option(help="Forms that are the same: nfc, nfkc or keep.")] = "nfc",
    case: Annotated[str, typer.Option(help="Capitals: fold or keep.")] = "fold",
    spaces: Annotated[str, typer.Option(help="Spaces: collapse, remove or keep.")] = "collapse",
    patience: Annotated[float, typer.Option(help="Seconds to wait for a party that is not there.")] = 600.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find whom parties have in common, without showing each other the rest.

    Each party runs it with its own table; both get their rows of the common people, in the same order.
    """
    from tacit.cli.signals import Terminated

    if not key:
        raise StudyError("name the column that identifies people: --key nin")
    settings: dict[str, Any] = {"learns": learns, "size_only": size_only, "column": column, "group": group}
    settings |= {"key": key, "spelling": {"unicode": unicode, "case": case, "spaces": spaces}, "threads": threads}
    own = {"party": party, "consortium": consortium, "others": others or (), "listen": listen, "connect": connect}
    try:
        found = _compare(files or [], data, out, settings, own | {"patience": patience}, local=local, quiet=quiet)
    except KeyboardInterrupt as error:
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None
    if as_json:
        typer.echo(json.dumps([_described(one, file) for one, file in found], indent=2))
    elif not quiet:
        _say(found, learns=learns, size_only=size_only)


def _compare(
    files: list[Path],
    data: Path | None,
    out: Path | None,
    settings: dict[str, Any],
    own: dict[str, Any],
    *,
    local: bool,
    quiet: bool,
) -> Outcome:
    from tacit.cli.signals import terminable
    from tacit.cli.steps import Steps

    with Steps(quiet=quiet) as steps, terminable():
        settings = settings | {"on_event": steps.on_event}
        if local:
            if any(value for name, value in own.items() if name != "patience") or data:
                raise StudyError("--local takes tables alone, as in: tacit psi --local a.csv b.csv --key nin")
            return _try_out(files, out or Path(), settings)
        if files:
            raise StudyError(f"{files[0]}: name your table with --data, or try it out with --local")
        party = own["party"]
        if party is None or data is None:
            raise StudyError("name yourself and your table, --party alice --data a.csv, or try it out with --local")
        return _take_part(data, out or Path(f"{party}-common.csv"), settings | own)


def _take_part(data: Path, out: Path, settings: dict[str, Any]) -> Outcome:
    """This party's side; its rows are written before the others hear that all is well."""
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import psi

    _check_out(out, data)
    table = read_table(data.expanduser(), as_text=True)

    def conclude(found: Intersection) -> None:
        if found.rows is not None:
            _write(found.of(table), out)

    found = psi(table, conclude=conclude, **settings)
    return [(found, out if found.rows is not None else None)]


def _try_out(files: list[Path], folder: Path, settings: dict[str, Any]) -> Outcome:
    """All parties, each called as its file is."""
    from tacit.data.readers import read_table
    from tacit.vertical.intersection import psi

    if len(files) < 2:
        raise StudyError("name two tables or more: tacit psi --local a.csv b.csv --key nin")
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        names = [f"{name}-{place}" for place, name in enumerate(names, 1)]
    tables = {name: read_table(file.expanduser(), as_text=True) for name, file in zip(names, files, strict=True)}
    outs = {name: folder / f"{name}-common.csv" for name in names}
    for file in files:
        for out in outs.values():
            _check_out(out, file)
    results = psi(tables, **settings)
    for name, found in results.items():
        if found.rows is not None:
            _write(found.of(tables[name]), outs[name])
    return [(found, outs[name] if found.rows is not None else None) for name, found in results.items()]


def _check_out(out: Path, data: Path) -> None:
    if out.suffix not in (".csv", ".parquet"):
        raise StudyError(f"{out}: expected a name that ends in .csv or .parquet")
    if out.is_dir():
        raise StudyError(f"{out} is a folder; name a file")
    if out.resolve() == data.expanduser().resolve():
        raise StudyError(f"{out} is the table itself; name another file with --out")


def _write(rows: Any, out: Path) -> None:
    from tacit.core.files import replacing

    with replacing(out, "wb") as file:
        if out.suffix == ".parquet":
            rows.to_parquet(file, index=False)
        else:
            rows.to_csv(file, index=False)


def _described(found: Intersection, file: Path | None) -> dict[str, Any]:
    keys = ("party", "size", "total", "missing", "repeated", "session", "sent", "received", "seconds")
    return {
        **{key: getattr(found, key) for key in keys},
        "sizes": dict(found.sizes),
        "file": None if file is None else str(file),
    }


def _say(found: Outcome, *, learns: str, size_only: bool) -> None:
    first = found[0][0]
    names = " and ".join(first.sizes) if len(first.sizes) == 2 else ", ".join(first.sizes)
    size = next((one.size for one, _ in found if one.size is not None), None)
    typer.echo(f"{names} have {size:,} in common" if size is not None else f"{names} were compared; {learns} knows")
    for one, file in found:
        left = [f"{count:,} {what}" for count, what in ((one.missing, "without"), (one.repeated, "repeated")) if count]
        but = f" ({', '.join(left)})" if left else ""
        brought = f"{one.sizes[one.party]:,} identifiers in {one.total:,} rows{but}"
        typer.echo(f"{one.party}: {brought}; sent {_bytes(one.sent)}, received {_bytes(one.received)}")
        if file is not None:
            typer.echo(f"{one.party}: {file} holds its common rows, in the same order as the others'")
    typer.echo(f"session {first.session[:16]}, {first.seconds:.1f} s; {_who_learns(learns, size_only)}")


def _who_learns(learns: str, size_only: bool) -> str:
    who = "each party has" if learns == "all" else f"{learns} has"
    what = "how many are common" if size_only else "which of its rows are common"
    return f"{who} learnt {what}, and all know how many identifiers each brought"


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
