"""Each client's own metrics, round by round, for the page's charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from tacit.report.study_tables import StudyTables
from tacit.report.thinning import choose_rounds, round_digits

MOST_VALUES = 240_000  # of clients' curves in a page; a value takes about 7 bytes
MOST_CLIENTS = 30
MOST_DOTS = 1000  # of a run's last round
KINDS = 4  # of curves that a client has
RANKS: dict[str, Callable[[list[float]], float]] = {
    "highest": max,
    "median": median,
    "lowest": min,
}  # what is drawn of a crowd, whose clients come and go
Records = list[dict[str, Any]]


@dataclass
class ShownCurves:
    """Which of the clients' curves are shown: all, or as many as a page can hold."""

    records: dict[str, Records]  # of each run, round by round
    clients: int  # of the run that has most of them
    rounds: int  # of the longest run
    notes: list[str]  # what was left out

    @property
    def values(self) -> int:
        return KINDS * self.clients * self.rounds * len(self.records)


def client_curves(results: StudyTables) -> dict[str, Any]:
    """The clients' curves; of very many, fewer seeds, clients and rounds, and a note."""
    shown = _fit_into_page(results)
    fitting = max(2, MOST_VALUES // max(1, KINDS * shown.clients * len(shown.records)))
    if shown.rounds > fitting:
        shown.notes.append(f"{fitting} of {shown.rounds} rounds")
    last_rounds = [records[-1]["round"] for records in shown.records.values()]
    shown_rounds = choose_rounds(max(last_rounds, default=0), fitting)
    curves = []
    for run, records in shown.records.items():
        thinned = [record for record in records if record["round"] in shown_rounds]
        thinned = thinned or records[-1:]
        if results.is_crowd(run):
            curves.append(_crowd_curve(results, run, thinned, records[-1]))
        else:
            curves.append(_client_curve(results, run, thinned, shown.clients))
    return {"clients": curves, "clients_note": ", ".join(shown.notes)}


def _fit_into_page(results: StudyTables) -> ShownCurves:
    """All curves or, if these are too many, those of one seed; then those of the first clients."""
    by_run: dict[str, Records] = {}
    for record in results.records:
        if not results.outline.runs[record["run"]].is_reference:
            by_run.setdefault(record["run"], []).append(record)
    lines = [_count_lines(results, run, records) for run, records in by_run.items()]
    rounds = max(map(len, by_run.values()), default=0)
    shown = ShownCurves(by_run, max(lines, default=0), rounds, notes=[])
    seeds = list(dict.fromkeys(results.outline.runs[run].seed for run in by_run))
    if shown.values > MOST_VALUES and len(seeds) > 1:
        for run in list(by_run):
            if results.outline.runs[run].seed != seeds[0]:
                del by_run[run]
        shown.notes.append(f"seed {seeds[0]}")
    if shown.values > MOST_VALUES and shown.clients > MOST_CLIENTS:
        shown.notes.append(f"the first {MOST_CLIENTS} of {shown.clients} clients")
        shown.clients = MOST_CLIENTS
    return shown


def _count_lines(results: StudyTables, run: str, records: Records) -> int:
    return len(RANKS) if results.is_crowd(run) else len(records[0]["clients"])


def _client_curve(
    results: StudyTables, run: str, records: Records, most_clients: int
) -> dict[str, Any]:
    last = records[-1]["clients"][:most_clients]
    curve = {
        **describe_run(results, run, records),
        "names": list(results.client_names(run)[:most_clients]),
        "attackers": [client["client"] for client in last if client.get("attacker")],
    }
    for kind, figure in _figures(results).items():
        lines = []
        for number in range(len(last)):
            values = [record["clients"][number][figure] for record in records]
            lines.append([round_digits(value) for value in values])
        curve[kind] = lines
    return curve


def _crowd_curve(
    results: StudyTables, run: str, records: Records, last: dict[str, Any]
) -> dict[str, Any]:
    """The highest, the median and the lowest value of each round, and all of the last round."""
    names = results.client_names(run)
    score = f"test_{results.score}"
    dots = [client for client in last["clients"] if _is_known(client, score)][:MOST_DOTS]
    curve = {
        **describe_run(results, run, records),
        "names": list(RANKS),
        "attackers": [],
        "last": {
            "names": [names[client["client"]] for client in dots],
            "test": [[round_digits(client[score])] for client in dots],
            "attackers": [],
        },
    }
    for kind, figure in _figures(results).items():
        curve[kind] = _ranked_lines(records, figure)
    return curve


def _ranked_lines(records: Records, figure: str) -> list[list[float | None]]:
    """One line for each of RANKS."""
    lines: list[list[float | None]] = [[] for _ in RANKS]
    for record in records:
        clients = record["clients"]
        values = [client[figure] for client in clients if _is_known(client, figure)]
        for line, rank in zip(lines, RANKS.values(), strict=True):
            line.append(round_digits(rank(values)) if values else None)
    return lines


def _is_known(client: dict[str, Any], figure: str) -> bool:
    """Whether an honest client has this figure."""
    return client[figure] is not None and not client.get("attacker")


def describe_run(results: StudyTables, run: str, records: Records) -> dict[str, Any]:
    """What tells this run from others, and the rounds that are shown of it."""
    return {
        "run": run,
        "method": results.names[run],
        "split": results.column_of(run),
        "seed": results.outline.runs[run].seed,
        "round": [record["round"] for record in records],
    }


def _figures(results: StudyTables) -> dict[str, str]:
    """The kinds of curve, and the figure of a client's record that each shows."""
    figures = {"train": f"train_{results.score}"}
    if results.score != results.basis:  # not known of training
        figures = {}
    return {
        **figures,
        "test": f"test_{results.score}",
        "train_loss": "train_loss",
        "test_loss": "test_loss",
    }
