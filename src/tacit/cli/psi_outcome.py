"""What `tacit psi` prints: sizes, files, and who has learnt what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tacit.cli.terminal import print_json

if TYPE_CHECKING:
    from tacit.vertical.intersection import Intersection

KEYS = ("party", "size", "total", "missing", "repeated", "session", "sent", "received", "seconds")
SURPRISE = (
    "if you expected more: are identifiers written the same way on all sides?"
    " 007 and 7 differ, and so do 7.0 and 7 in a CSV"
)


class Outcome(NamedTuple):
    """What one party has learnt, and the file with its rows, if it has learnt which."""

    result: Intersection
    file: Path | None


def print_outcomes_json(outcomes: list[Outcome]) -> None:
    """Prints an object for each party."""
    print_json([_as_dict(outcome) for outcome in outcomes])


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    result, file = outcome
    values = {key: getattr(result, key) for key in KEYS}
    values["sizes"] = dict(result.sizes)
    values["file"] = None if file is None else str(file)
    values["log"] = None if result.log is None else str(result.log)
    return values


def print_outcomes(outcomes: list[Outcome], *, learns: str, size_only: bool) -> None:
    """Prints how many all parties have, what each party brought, and who has learnt what."""
    first = outcomes[0].result
    _print_size(outcomes, learns)
    for result, file in outcomes:
        traffic = f"sent {_bytes(result.sent)}, received {_bytes(result.received)}"
        typer.echo(f"{result.party}: {_brought(result)}; {traffic}")
        if file is not None:
            order = ", in the same order as the others'" if learns == "all" else ""
            typer.echo(f"{result.party}: {file} holds its rows of these people{order}")
    session = f"session {first.session[:16]}, {first.seconds:.1f} s"
    typer.echo(f"{session}; {_who_learns(list(first.sizes), learns, size_only)}")


def _print_size(outcomes: list[Outcome], learns: str) -> None:
    parties = list(outcomes[0].result.sizes)
    names = " and ".join(parties) if len(parties) == 2 else ", ".join(parties)
    sizes = [result.size for result, _ in outcomes if result.size is not None]
    if not sizes:
        typer.echo(f"{names} were compared; {learns} has learnt the result")
        return
    typer.echo(f"{names} have {sizes[0]:,} in common")
    if sizes[0] == 0:
        typer.echo(SURPRISE)


def _brought(result: Intersection) -> str:
    """How many identifiers the party brought, and which of its rows do not count."""
    left_out = []
    if result.missing:
        left_out.append(f"{result.missing:,} without")
    if result.repeated:
        left_out.append(f"{result.repeated:,} repeated")
    text = f"{result.sizes[result.party]:,} identifiers in {result.total:,} rows"
    return f"{text} ({', '.join(left_out)})" if left_out else text


def _who_learns(parties: list[str], learns: str, size_only: bool) -> str:
    who = "each party has" if learns == "all" else f"{learns} has"
    fact = "how many all parties have" if size_only else "which of its rows all parties have"
    text = f"{who} learnt {fact}, and all know how many identifiers each brought"
    if len(parties) == 2:
        return text
    collector = parties[0] if learns == "all" else learns
    text += f"; {collector}, which compared, also knows how many any of them have in common"
    if not size_only and learns != "all":
        judge = parties[parties.index(collector) - 1]
        text += f", and {judge} knows how many all have in common"
    return text


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
