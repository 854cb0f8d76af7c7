"""`tacit cert`: who belongs to a consortium, and the certificates of its parties."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.certificate_table import certificate_rows, print_certificates
from tacit.cli.flags import FlagGroup
from tacit.cli.options import Json, NamesOnly, Quiet
from tacit.cli.terminal import print_json
from tacit.core.errors import DataError

if TYPE_CHECKING:
    from tacit.channel.certificates import Issued
    from tacit.channel.consortium import Address, Consortium, Member

cert_app = typer.Typer(
    cls=FlagGroup,
    help="Make and show the certificates by which parties of a consortium recognise each other.",
)
FOLDER = Path("consortium")

Party = Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and hyphens.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="The consortium's folder; if left out, this one if it has a consortium.yaml, "
        "else consortium/."
    ),
]
ConsortiumName = Annotated[
    str | None, typer.Argument(help="The consortium's name; the folder's if left out.")
]
NewFolder = Annotated[Path, typer.Option(help="The folder to make.")]
AuthorityDays = Annotated[int, typer.Option(help="How long the authority is valid.")]
ListenAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where the party listens; without an address it only connects to others.",
    ),
]
Request = Annotated[Path | None, typer.Option(help="The party's .csr, from tacit cert request.")]
WithKey = Annotated[
    bool,
    typer.Option("--with-key", help="To try things out: make the party's key here too."),
]
NewPassphrase = Annotated[
    bool,
    typer.Option(
        "--passphrase",
        help="Encrypt the new key: asks for a passphrase, or takes it from TACIT_PASSPHRASE.",
    ),
]
CertificateDays = Annotated[int, typer.Option(help="How long the certificate is valid.")]
ShownFiles = Annotated[
    list[Path] | None,
    typer.Argument(help="Certificates or consortium files; the consortium here if left out."),
]


@cert_app.callback(invoke_without_command=True)
def options(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cert_app.command("init")
def init_command(
    name: ConsortiumName = None,
    folder: NewFolder = FOLDER,
    days: AuthorityDays = 3650,
    passphrase: NewPassphrase = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a consortium: its certificate authority, and its file of parties."""
    from tacit.channel.certificates import create_authority
    from tacit.channel.consortium import FILE, Consortium
    from tacit.channel.credentials import describe
    from tacit.channel.party_names import check_consortium_name
    from tacit.core.files import created

    path = folder / FILE
    key = folder / "ca.key"
    name = check_consortium_name(folder.resolve().name if name is None else name)
    if path.exists():
        remedy = "nothing is overwritten: name another folder with --folder"
        raise DataError(f"{path} exists already; {remedy}")
    consortium = Consortium(name, folder / "ca.pem", {})
    secret = _new_passphrase(key) if passphrase else None
    with created(path, consortium.text(folder).encode()):
        ca = create_authority(folder, name, days=days, passphrase=secret)
    fingerprint = describe(ca).key_fingerprint
    if as_json:
        made = {"file": str(path), "ca": str(ca), "key": str(key)}
        print_json({"consortium": name, **made, "key_fingerprint": fingerprint})
    elif not quiet:
        typer.echo(f"made the consortium {name}: {path}, {ca}, {key}")
        typer.echo(f"the key fingerprint of {ca.name} is {fingerprint}")
        typer.echo(f"keep {key} to yourself: with it, anybody can join in any party's name")
        typer.echo("next, each party runs: tacit cert request PARTY")
        option = "" if folder == FOLDER else f" --folder {shlex.quote(str(folder))}"
        example = f"tacit cert issue PARTY --request PARTY.csr --address HOST:PORT{option}"
        typer.echo(f"and sends you PARTY.csr, for which you run: {example}")


@cert_app.command("request")
def request_command(
    party: Party,
    folder: Folder = None,
    passphrase: NewPassphrase = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a key of your own and a request for its certificate, so that the key stays with you."""
    from tacit.channel.certificates import create_request, requested_fingerprint

    folder = folder or _default_folder()
    key = folder / f"{party}.key"
    secret = _passphrase_for(key) if passphrase else None
    request = create_request(folder, party, passphrase=secret)
    fingerprint = requested_fingerprint(request, party)
    if as_json:
        made = {"request": str(request), "key": str(key)}
        print_json({"party": party, **made, "key_fingerprint": fingerprint})
    elif not quiet:
        command = f"tacit cert issue {party} --request PATH/{request.name}"
        typer.echo(f"send {request} to the party that manages the consortium, to run: {command}")
        typer.echo(
            f"if other parties are to connect to {party}, that party adds: --address HOST:PORT"
        )
        typer.echo(f"its key fingerprint is {fingerprint}")
        typer.echo("read the fingerprint out to that party, by telephone: it sees the same")
        files = f"consortium.yaml, ca.pem, {party}.pem"
        typer.echo(
            f"keep {key} to yourself, and put the files that you get back next to it: {files}"
        )


@cert_app.command("issue")
def issue_command(
    party: Party,
    address: ListenAddress = None,
    request: Request = None,
    folder: Folder = None,
    days: CertificateDays = 365,
    with_key: WithKey = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Issue or renew a party's certificate, and add the party to consortium.yaml."""
    from tacit.core.files import alone_in

    if request is not None and with_key:
        raise DataError(f"{request} is for a key that {party} has made; leave out --with-key")
    folder = folder or _default_folder()
    with alone_in(folder):  # of two processes that issue at once, one entry would be lost
        handover = _issue(folder, party, address, request=request, days=days, with_key=with_key)
    if as_json:
        print_json(handover.to_dict())
    elif not quiet:
        _print_handover(handover)
        if handover.is_news:
            typer.echo(f"the other parties need the new {folder / 'consortium.yaml'} too")


def _issue(
    folder: Path,
    party: str,
    address: str | None,
    *,
    request: Path | None,
    days: int,
    with_key: bool,
) -> Handover:
    """Writes the party's certificate, and the consortium's file where its entry is another one."""
    from tacit.channel.certificates import prepare
    from tacit.core.files import restoring

    consortium = _issuing_consortium(folder)
    member = _member(consortium, party, folder, address)
    issued = prepare(folder, party, days=days, request=request, with_key=with_key)
    before = consortium.members.get(party)
    if request is None:
        _check_known(party, issued, before)
    member = member.with_key(issued.key_fingerprint)
    path = folder / "consortium.yaml"
    with restoring(path):
        if before != member:
            consortium.with_member(member).write(path)
        issued.write()
    return Handover(party, folder, issued, before, is_news=before != member)


def _issuing_consortium(folder: Path) -> Consortium:
    """The consortium whose authority is in this folder."""
    from tacit.channel.consortium import FILE, Consortium

    path = folder / FILE
    consortium = Consortium.read(path)
    if consortium.ca.resolve() != (folder / "ca.pem").resolve():
        text = f"{path} names the authority {consortium.ca}"
        raise DataError(f"{text}; certificates are signed by {folder / 'ca.pem'}")
    return consortium


def _check_known(party: str, issued: Issued, before: Member | None) -> None:
    """Refuses a key that consortium.yaml no longer has, and a party that was taken out of it.

    An old request or certificate may still lie in the folder; whoever names the request means it.
    """
    if before is None:
        if issued.certificate_file.exists():
            raise DataError(
                f"{party} has {issued.certificate_file} and is not in consortium.yaml any more; "
                "name its request to let it in again",
                parameters=("request",),
            )
        return
    if before.key_fingerprint not in (None, issued.key_fingerprint):
        raise DataError(
            f"what lies in {issued.certificate_file.parent} is for another key of {party} than "
            "consortium.yaml has; name the party's request for its new key",
            parameters=("request",),
        )


def _passphrase_for(key: Path) -> str:
    """That of the key that is there, or one for a key that is to be made."""
    from tacit.channel.passphrases import passphrase_for

    if not key.exists():
        return _new_passphrase(key)
    return passphrase_for(key, None).decode("utf-8", "surrogatepass")


def _new_passphrase(key: Path) -> str:
    from tacit.channel.passphrases import new_passphrase

    return new_passphrase(key)


def _member(consortium: Consortium, party: str, folder: Path, address: str | None) -> Member:
    """The party's entry; without a new address it keeps the one it has."""
    from tacit.channel.consortium import Address, default_member
    from tacit.channel.party_names import check_party_name

    member = default_member(check_party_name(party), folder)
    if address is not None:
        return replace(member, address=_dialled(Address.parse(address)))
    if party in consortium.members:
        return replace(member, address=consortium.members[party].address)
    return member


def _dialled(address: Address) -> Address:
    if address.port == 0:
        raise DataError(f"--address {address}: nobody can connect to port 0; name the port")
    return address


@dataclass(frozen=True)
class Handover:
    """The files that a party gets; no key if the party has made its own."""

    party: str
    folder: Path
    issued: Issued
    before: Member | None
    is_news: bool  # to the other parties

    @property
    def key(self) -> Path | None:
        key = self.issued.key_file
        return None if self.issued.requested or not key.exists() else key

    @property
    def files(self) -> list[str]:
        files = [self.folder / "consortium.yaml", self.folder / "ca.pem"]
        files.append(self.issued.certificate_file)
        if self.key is not None:
            files.append(self.key)
        return [str(file) for file in files]

    @property
    def new_key(self) -> bool:
        return self.issued.key_pem is not None

    def to_dict(self) -> dict[str, object]:
        return {
            "party": self.party,
            "new_key": self.new_key,
            "key_fingerprint": self.issued.key_fingerprint,
            "hand_over": self.files,
        }


def _print_handover(handover: Handover) -> None:
    from tacit.channel.credentials import describe

    party = handover.party
    certificate = handover.issued.certificate_file
    until = describe(certificate).not_after
    key = "with a new key" if handover.new_key else "for its key"
    typer.echo(f"issued {certificate}, valid until {until:%Y-%m-%d}, {key}")
    _print_fingerprint(handover)
    typer.echo(f"give {party} these files, in one folder: {', '.join(handover.files)}")
    if handover.key is not None:
        advice = f"send it in a safe way, or let {party} make it: tacit cert request {party}"
        typer.echo(f"{handover.key.name} is secret: {advice}")
    typer.echo("never give ca.key to anybody")


def _print_fingerprint(handover: Handover) -> None:
    """Prints the key's fingerprint and, if the key is new to the consortium, what to do."""
    party = handover.party
    fingerprint = handover.issued.key_fingerprint
    typer.echo(f"its key fingerprint is {fingerprint}")
    earlier = handover.before.key_fingerprint if handover.before else None
    if handover.new_key or earlier == fingerprint:
        return
    typer.echo(f"let {party} read its fingerprint out, by telephone: it has to be the same")
    if earlier is not None:
        typer.echo(
            f"the earlier key of {party}, {earlier}, is refused by all who have the new "
            "consortium.yaml"
        )


@cert_app.command("show")
def show_command(
    files: ShownFiles = None,
    as_json: Json = False,
    quiet: NamesOnly = False,
) -> None:
    """Show parties, where they listen, how long certificates are valid, and fingerprints."""
    rows = certificate_rows(files or [None])
    if as_json:
        print_json(rows)
    elif quiet:
        typer.echo("\n".join(row["party"] for row in rows))
    else:
        print_certificates(rows)


def _default_folder() -> Path:
    """This folder if a consortium is in it, else `consortium`."""
    return Path() if Path("consortium.yaml").exists() else FOLDER
