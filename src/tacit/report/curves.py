"""The numbers that the page's charts are drawn from."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tacit.report.results import Results

SCORES = {"accuracy": "accuracy", "r2": "R²"}
MOST_VALUES = 240_000  # of clients' curves in a page; a value takes about 7 bytes
MOST_ROUNDS = 400  # of a curve
MOST_CLIENTS = 30


def is_reference(name: str) -> bool:
    """Whether a row of a table is the centralised reference."""
    return name.startswith("centralised")


def chart_data(results: Results) -> dict[str, Any]:
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
        "splits": [one for one in columns if one != "all data"] or columns,
        "curves": curves,
        **_client_curves(results),
        "portraits": [portrait.to_dict() for portrait in results.portraits],
    }


def _curves(results: Results) -> list[dict[str, Any]]:
    rounds, found = results.frame(), []
    kept_rounds = _kept_rounds(max(rounds["round"], default=0) if len(rounds) else 0, MOST_ROUNDS)
    for run, mine in rounds.groupby("run", sort=False) if len(rounds) else ():
        label = results.labels[str(run)]
        kept = mine[mine["round"].isin(kept_rounds)]
        costs = pd.DataFrame({"mb": mine["bytes_up"].cumsum() / 1e6, "time": mine["seconds"].cumsum()}).loc[kept.index]
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


def _client_curves(results: Results) -> dict[str, Any]:
    """Each client's metrics round by round; of very many, fewer seeds, clients and rounds, and a note."""
    by_run: dict[str, list[dict[str, Any]]] = {}
    for record in results.records:
        if not results.runs[record["run"]].centralised:
            by_run.setdefault(record["run"], []).append(record)
    notes, clients = [], max((len(mine[0]["clients"]) for mine in by_run.values()), default=0)
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
    thinned = {run: [record for record in mine if record["round"] in kept] or mine[-1:] for run, mine in by_run.items()}
    found = [_client_curve(results, run, mine, clients) for run, mine in thinned.items()]
    return {"clients": found, "clients_note": ", ".join(notes)}


def _client_curve(results: Results, run: str, records: list[dict[str, Any]], most: int) -> dict[str, Any]:
    score, names = results.score, results.client_names(run)
    last = records[-1]["clients"][:most]
    kinds = {"train": f"train_{score}", "test": f"test_{score}", "train_loss": "train_loss", "test_loss": "test_loss"}
    return {
        "run": run,
        "method": results.names[run],
        "split": results.labels[run][results.columns],
        "seed": results.runs[run].seed,
        "round": [record["round"] for record in records],
        "names": list(names[:most]),
        "attackers": [client["client"] for client in last if client.get("attacker")],
        **{
            kind: [[_rounded(record["clients"][k][field]) for record in records] for k in range(len(last))]
            for kind, field in kinds.items()
        },
    }


def _plain(values: pd.Series, digits: int | None = None) -> list[float | None]:
    return [_rounded(value, digits) if digits else (None if math.isnan(value) else float(value)) for value in values]


def _rounded(value: float | None, digits: int = 5) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{value:.{digits}g}")


def _kept_rounds(longest: int, most: int) -> set[int]:
    """At most so many rounds, the first and the last of the longest run among them: the same for all runs of a study,
    since a mean over seeds needs all of them at each of its rounds."""
    if longest <= most:
        return set(range(1, longest + 1))
    return {1 + round(k * (longest - 1) / (most - 1)) for k in range(most)}
