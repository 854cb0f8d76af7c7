"""The numbers that the page's charts are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

import pandas as pd

from tacit.report.tables import Tables
from tacit.study.kinds.reference import ALL_DATA, REFERENCE
from tacit.study.tested_clients import is_crowd

SCORES = {"accuracy": "accuracy", "r2": "R²"}
MOST_VALUES = 240_000  # of clients' curves in a page; a value takes about 7 bytes
MOST_ROUNDS = 400  # of a curve
MOST_CLIENTS = 30
MOST_DOTS = 1000  # of a run's last round
RANKS: dict[str, Callable[[list[float]], float]] = {
    "highest": max,
    "median": median,
    "lowest": min,
}  # what is drawn of a crowd


def is_reference(name: str) -> bool:
    """Whether a row of a table is the centralised reference."""
    return name.startswith(REFERENCE)


def chart_data(results: Tables) -> dict[str, Any]:
    """The numbers behind the charts, as plain lists."""
    reference = [name for name in dict.fromkeys(results.names.values()) if is_reference(name)]
    methods = [name for name in dict.fromkeys(results.names.values()) if name not in reference]
    columns = list(dict.fromkeys(label[results.columns] for label in results.labels.values()))
    curves = _curves(results)
    return {
        "score": results.score,
        "score_name": SCORES[results.score],
        "columns": results.columns,
        "methods": methods or reference,
        "references": reference if methods else [],
        "splits": [one for one in columns if one != ALL_DATA] or columns,
        "curves": curves,
        **_client_curves(results),
        "crowds": any(map(is_crowd, results.runs.values())),
        "portraits": [portrait.to_dict() for portrait in results.portraits],
    }


def _curves(results: Tables) -> list[dict[str, Any]]:
    rounds, found = results.frame(), []
    kept_rounds = _kept_rounds(max(rounds["round"], default=0) if len(rounds) else 0, MOST_ROUNDS)
    for run, mine in rounds.groupby("run", sort=False) if len(rounds) else ():
        label = results.labels[str(run)]
        kept = mine[mine["round"].isin(kept_rounds)]
        costs = pd.DataFrame(
            {"mb": mine["bytes_up"].cumsum() / 1e6, "time": mine["seconds"].cumsum()}
        ).loc[kept.index]
        found.append(
            {
                "run": run,
                "method": results.names[str(run)],
                "split": label[results.columns],
                "seed": results.runs[str(run)].seed,
                "status": str(mine["status"].iloc[-1]),
                "round": kept["round"].tolist(),
                "score": _plain(kept[results.score]),
                "loss": _plain(kept["loss"]),
                "mb": _plain(costs["mb"], 6),
                "time": _plain(costs["time"], 4),
            }
        )
    return found


def _client_curves(results: Tables) -> dict[str, Any]:
    """Each client's metrics round by round; of very many, fewer seeds, clients and rounds, and a note."""
    by_run: dict[str, list[dict[str, Any]]] = {}
    for record in results.records:
        if not results.runs[record["run"]].is_reference:
            by_run.setdefault(record["run"], []).append(record)
    crowds = {run: is_crowd(results.runs[run]) for run in by_run}
    lines = {
        run: len(RANKS) if crowds[run] else len(mine[0]["clients"]) for run, mine in by_run.items()
    }
    notes, clients = [], max(lines.values(), default=0)
    steps = max(map(len, by_run.values()), default=0)
    seeds = list(dict.fromkeys(results.runs[run].seed for run in by_run))
    if 4 * clients * steps * len(by_run) > MOST_VALUES and len(seeds) > 1:
        by_run = {run: mine for run, mine in by_run.items() if results.runs[run].seed == seeds[0]}
        notes.append(f"seed {seeds[0]}")
    if 4 * clients * steps * len(by_run) > MOST_VALUES and clients > MOST_CLIENTS:
        notes.append(f"the first {MOST_CLIENTS} of {clients} clients")
        clients = MOST_CLIENTS
    fitting = max(2, MOST_VALUES // max(1, 4 * clients * len(by_run)))
    if steps > fitting:
        notes.append(f"{fitting} of {steps} rounds")
    kept = _kept_rounds(max((mine[-1]["round"] for mine in by_run.values()), default=0), fitting)
    thinned = {
        run: [record for record in mine if record["round"] in kept] or mine[-1:]
        for run, mine in by_run.items()
    }
    found = [
        _crowd_curve(results, run, mine, by_run[run][-1])
        if crowds[run]
        else _client_curve(results, run, mine, clients)
        for run, mine in thinned.items()
    ]
    return {"clients": found, "clients_note": ", ".join(notes)}


def _client_curve(
    results: Tables, run: str, records: list[dict[str, Any]], most: int
) -> dict[str, Any]:
    names, last = results.client_names(run), records[-1]["clients"][:most]
    return {
        **about_run(results, run, records),
        "names": list(names[:most]),
        "attackers": [client["client"] for client in last if client.get("attacker")],
        **{
            kind: [
                [rounded(record["clients"][k][field]) for record in records]
                for k in range(len(last))
            ]
            for kind, field in _kinds(results).items()
        },
    }


def _crowd_curve(
    results: Tables, run: str, records: list[dict[str, Any]], last: dict[str, Any]
) -> dict[str, Any]:
    """Of clients that come and go: the highest, the median and the lowest value of each round, and the last round's."""
    names, field = results.client_names(run), f"test_{results.score}"
    dots = [(names[one["client"]], one[field]) for one in last["clients"] if _is_told(one, field)][
        :MOST_DOTS
    ]
    return {
        **about_run(results, run, records),
        "names": list(RANKS),
        "attackers": [],
        **{kind: _ranked(records, field) for kind, field in _kinds(results).items()},
        "last": {
            "names": [name for name, _ in dots],
            "test": [[rounded(value)] for _, value in dots],
            "attackers": [],
        },
    }


def _ranked(records: list[dict[str, Any]], field: str) -> list[list[float | None]]:
    values = [
        [one[field] for one in record["clients"] if _is_told(one, field)] for record in records
    ]
    return [
        [rounded(rank(found)) if found else None for found in values] for rank in RANKS.values()
    ]


def _is_told(one: dict[str, Any], field: str) -> bool:
    """Whether an honest client has this figure."""
    return one[field] is not None and not one.get("attacker")


def about_run(results: Tables, run: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """What tells this run from others, and the rounds that are shown of it."""
    return {
        "run": run,
        "method": results.names[run],
        "split": results.labels[run][results.columns],
        "seed": results.runs[run].seed,
        "round": [record["round"] for record in records],
    }


def _kinds(results: Tables) -> dict[str, str]:
    score = results.score
    return {
        "train": f"train_{score}",
        "test": f"test_{score}",
        "train_loss": "train_loss",
        "test_loss": "test_loss",
    }


def _plain(values: pd.Series, digits: int | None = None) -> list[float | None]:
    return [
        rounded(value, digits) if digits else (None if math.isnan(value) else float(value))
        for value in values
    ]


def rounded(value: float | None, digits: int = 5) -> float | None:
    """To so many significant digits; None for what is no number."""
    return None if value is None or math.isnan(value) else float(f"{value:.{digits}g}")


def _kept_rounds(longest: int, most: int) -> set[int]:
    """At most so many rounds, the first and the last of the longest run among them: the same for all runs of a study,
    since a mean over seeds needs all of them at each of its rounds."""
    if longest <= most:
        return set(range(1, longest + 1))
    return {1 + round(k * (longest - 1) / (most - 1)) for k in range(most)}
