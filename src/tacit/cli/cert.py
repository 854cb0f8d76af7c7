"""`tacit cert`: who belongs to a consortium, and the certificates by which its parties know each other."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.options import Json, Quiet
from tacit.core.errors import DataError

cert_app = typer.Typer(
    help="Make and show the certificates by which the parties of a consortium know each other."
)
Party = Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and hyphens.")]
Folder = Annotated[
    Path | None,
    typer.Option(help="The folder of the files; by default this one if it has a consortium.yaml."),
]
FOLDER = Path("consortium")


@cert_app.callback(invoke_without_command=True)
def options(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cert_app.command("init")
def init_command(
    name: Annotated[
        str | None, typer.Argument(help="The consortium's name; by default the folder's.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder to make.")] = FOLDER,
    days: Annotated[int, typer.Option(help="How long the authority is valid.")] = 3650,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a consortium: its certificate authority, and its file of parties."""
    from tacit.channel.certificates import create_authority
    from tacit.channel.consortium import FILE, Consortium
    from tacit.channel.party_names import check_consortium_name
    from tacit.core.files import created

    path = folder / FILE
    name = check_consortium_name(folder.resolve().name if name is None else name)
    if path.exists():
        raise DataError(
            f"{path} exists already; nothing is overwritten: name another folder with --folder"
        )
    made = Consortium(name, folder / "ca.pem", {})
    with created(path, made.text(folder).encode()):
        ca = create_authority(folder, name, days=days)
    if as_json:
        _print(
            {"consortium": name, "file": str(path), "ca": str(ca), "key": str(folder / "ca.key")}
        )
    elif not quiet:
        where = "" if folder == FOLDER else f" --folder {shlex.quote(str(folder))}"
        typer.echo(f"made the consortium {name}: {path}, {ca}, {folder / 'ca.key'}")
        typer.echo(
            f"keep {folder / 'ca.key'} to yourself: with it, anybody can join in any party's name"
        )
        typer.echo(f"next, for each party: tacit cert issue PARTY --address HOST:PORT{where}")


@cert_app.command("request")
def request_command(
    party: Party,
    folder: Folder = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a key of your own and a request for its certificate, so that the key never leaves you."""
    from tacit.channel.certificates import create_request

    folder = _folder(folder)
    request = create_request(folder, party)
    key = folder / f"{party}.key"
    if as_json:
        _print({"party": party, "request": str(request), "key": str(key)})
    elif not quiet:
        typer.echo(
            f"send {request} to whoever keeps the consortium, for: tacit cert issue {party} --request {request.name}"
        )
        typer.echo(
            f"keep {key} to yourself, and put what you get back beside it: consortium.yaml, ca.pem, {party}.pem"
        )


@cert_app.command("issue")
def issue_command(
    party: Party,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where it listens; without one it only dials out."),
    ] = None,
    request: Annotated[
        Path | None, typer.Option(help="The party's .csr, from tacit cert request.")
    ] = None,
    folder: Folder = None,
    days: Annotated[int, typer.Option(help="How long the certificate is valid.")] = 365,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Issue a party's certificate, or renew it for the key it has, and enter the party in consortium.yaml."""
    from tacit.channel.certificates import issue
    from tacit.channel.consortium import FILE, Address, Consortium, default_member
    from tacit.channel.party_names import check_party_name
    from tacit.core.files import restoring

    folder = _folder(folder)
    path = folder / FILE
    known = Consortium.read(path)
    if known.ca.resolve() != (folder / "ca.pem").resolve():
        raise DataError(
            f"{path} names the authority {known.ca}; certificates are signed by {folder / 'ca.pem'}"
        )
    member = default_member(
        check_party_name(party), folder, Address.parse(address) if address is not None else None
    )
    if address is None and party in known.members:
        member = replace(member, address=known.members[party].address)
    own_key = member.key.exists()
    with restoring(path):
        if changed := known.members.get(party) != member:
            known.with_member(member).write(path)
        certificate = issue(folder, party, days=days, request=request)
    fresh = member.key.exists() and not own_key
    files = [path, folder / "ca.pem", certificate, *([member.key] if member.key.exists() else [])]
    if as_json:
        _print({"party": party, "new_key": fresh, "hand_over": [str(file) for file in files]})
    elif not quiet:
        _say_what_to_hand_over(party, files, fresh)
        if changed:
            typer.echo(f"the other parties need the new {path} too")


def _say_what_to_hand_over(party: str, files: list[Path], fresh: bool) -> None:
    from tacit.channel.certificates import describe

    found = describe(files[2])
    typer.echo(
        f"issued {files[2]}, valid until {found.not_after:%Y-%m-%d}, {'with a new key' if fresh else 'for its key'}"
    )
    typer.echo(f"hand to {party}, in one folder: {', '.join(map(str, files))}")
    if len(files) > 3:
        typer.echo(
            f"{files[3].name} is secret: send it by a safe way, or let {party} make it: tacit cert request {party}"
        )
    typer.echo("never hand over ca.key")


@cert_app.command("show")
def show_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Certificates or consortium files; by default the consortium here."),
    ] = None,
    as_json: Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the names alone, one per line.")
    ] = False,
) -> None:
    """Show parties, where they listen, how long their certificates are valid, and their fingerprints."""
    from tacit.channel.consortium import Consortium

    rows: list[dict[str, Any]] = []
    chosen: list[Path | None] = [*files] if files else [None]
    for file in chosen:
        if file is None or file.is_dir() or file.suffix in (".yaml", ".yml"):
            rows += _consortium_rows(Consortium.find(file))
        else:
            rows.append(_row(file))
    if as_json:
        _print(rows)
    elif quiet:
        typer.echo("\n".join(row["party"] for row in rows))
    else:
        _show(rows)


def _consortium_rows(found: Any) -> list[dict[str, Any]]:
    """The authority and every party; on a party's machine the others' certificates are not there, and that is fine."""
    from tacit.channel.certificates import check_certificate

    rows = [_row(found.ca)]
    for member in found.members.values():
        row = {
            "party": member.name,
            "consortium": found.name,
            "file": str(member.certificate),
            "note": "not here",
        }
        if member.certificate.exists():
            row = _row(member.certificate) | {"party": member.name}
            try:
                check_certificate(found.ca, member.certificate, member.name)
            except DataError as error:
                row["note"] = str(error)
        rows.append(row | {"address": None if member.address is None else str(member.address)})
    return rows


def _row(path: Path) -> dict[str, Any]:
    from tacit.channel.certificates import describe

    found, now = describe(path), datetime.now(UTC)
    note = (
        "expired" if now >= found.not_after else "not yet valid" if now < found.not_before else ""
    )
    return {
        "party": found.party,
        "consortium": found.consortium,
        "authority": found.authority,
        "issuer": found.issuer,
        "not_before": found.not_before.isoformat(),
        "not_after": found.not_after.isoformat(),
        "days_left": found.days_left(now),
        "fingerprint": found.fingerprint,
        "file": str(path),
        "note": note,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from tacit.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for heading in (
        "party",
        "consortium",
        "address",
        "valid until",
        "days left",
        "fingerprint (SHA-256)",
        "note",
    ):
        table.add_column(
            heading, justify="right" if heading == "days left" else "left", overflow="fold"
        )
    for row in rows:
        until, left = row.get("not_after", "")[:10], str(row.get("days_left", ""))
        shown = (row["party"], row["consortium"], row.get("address") or "", until, left)
        table.add_row(*shown, row.get("fingerprint", ""), row["note"])
    console().print(table, markup=False)


def _folder(given: Path | None) -> Path:
    """The folder that is named, this one if a consortium is in it, or else `consortium`."""
    return given or (Path() if Path("consortium.yaml").exists() else FOLDER)


def _print(found: Any) -> None:
    typer.echo(json.dumps(found, indent=2))
