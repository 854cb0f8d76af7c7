"""What `tacit cert show` prints: a row for each party's certificate, and for the authority's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.terminal import console
from tacit.core.errors import DataError

if TYPE_CHECKING:
    from tacit.channel.consortium import Consortium, Member

HEADINGS = (
    "party",
    "consortium",
    "address",
    "valid until",
    "days left",
    "key fingerprint (SHA-256)",
    "note",
)
Row = dict[str, Any]


def certificate_rows(files: Sequence[Path | None]) -> list[Row]:
    """The rows of these certificates and consortium files; None is the consortium here."""
    from tacit.channel.consortium import Consortium

    rows: list[Row] = []
    for file in files:
        if file is None or file.is_dir() or file.suffix in (".yaml", ".yml"):
            rows += _consortium_rows(Consortium.find(file))
        else:
            rows.append(_row(file))
    return rows


def print_certificates(rows: list[Row]) -> None:
    """Prints the rows as a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        right = heading == "days left"
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(
            row["party"],
            row["consortium"],
            row.get("address") or "",
            row.get("not_after", "")[:10],
            str(row.get("days_left", "")),
            row.get("key_fingerprint") or "",
            row["note"],
        )
    console().print(table, markup=False)


def _consortium_rows(consortium: Consortium) -> list[Row]:
    """The authority and every party."""
    rows = [_row(consortium.ca)]
    for member in consortium.members.values():
        row = _member_row(consortium, member)
        row["address"] = None if member.address is None else str(member.address)
        rows.append(row)
    return rows


def _member_row(consortium: Consortium, member: Member) -> Row:
    """A party, whose certificate is usually not there on another party's machine."""
    from tacit.channel.credentials import check_certificate

    if not member.certificate.exists():
        return {
            "party": member.name,
            "consortium": consortium.name,
            "key_fingerprint": member.key_fingerprint,
            "file": str(member.certificate),
            "note": "not here",
        }
    row = _row(member.certificate)
    row["party"] = member.name
    try:
        check_certificate(
            consortium.ca, member.certificate, member.name, pin=member.key_fingerprint
        )
    except DataError as error:
        row["note"] = str(error)
    return row


def _row(path: Path) -> Row:
    from tacit.channel.credentials import describe

    certificate = describe(path)
    now = datetime.now(UTC)
    note = ""
    if now >= certificate.not_after:
        note = "expired"
    elif now < certificate.not_before:
        note = "not yet valid"
    return {
        "party": certificate.party,
        "consortium": certificate.consortium,
        "authority": certificate.authority,
        "issuer": certificate.issuer,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "days_left": certificate.days_left(now),
        "fingerprint": certificate.fingerprint,
        "key_fingerprint": certificate.key_fingerprint,
        "file": str(path),
        "note": note,
    }
