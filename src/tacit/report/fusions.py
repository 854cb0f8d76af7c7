"""What the page and the pictures tell of fusions: scores beside their baselines, widths, and who shares a neuron."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tacit.report.baselines import with_baselines
from tacit.report.curves import about_run, rounded
from tacit.report.pictures import called
from tacit.report.tables import Tables

MOST_NEURONS = 300  # local ones of a layer whose matching can be drawn
KINDS = (
    "alone",
    "average",
    "",
    "ensemble",
)  # as they stand below each other; "" is a fused network


@dataclass(frozen=True)
class Sharing:
    """How the clients' neurons of a layer became global ones."""

    places: list[list[int]]  # for each client, the global neuron of each of its own
    order: list[int]  # the global neurons, the most shared first
    owners: list[list[int]]  # for each global neuron, its clients

    @classmethod
    def of(cls, places: Sequence[Sequence[int]], width: int) -> Sharing:
        plain = [[int(neuron) for neuron in own] for own in places]
        owners: list[list[int]] = [[] for _ in range(width)]
        for client, own in enumerate(plain):
            for neuron in own:
                owners[neuron].append(client)
        return cls(plain, sorted(range(width), key=lambda k: (-len(owners[k]), owners[k])), owners)

    @property
    def local(self) -> int:
        """The neurons of all clients together."""
        return sum(map(len, self.places))

    @property
    def is_small(self) -> bool:
        return self.local <= MOST_NEURONS

    @property
    def shares(self) -> list[int]:
        """How many global neurons one client has alone, two share, and so on."""
        found = Counter(map(len, self.owners))
        return [found[k] for k in range(1, max(found) + 1)]


def fusion_data(results: Tables) -> dict[str, Any] | None:
    """The numbers behind the section's charts; None where no run has a fusion."""
    if not any(run.kind == "fusion" for run in results.runs.values()):
        return None
    last = last_records(results)
    return {
        "scores": score_rows(results),
        "widths": width_rows(results),
        "matchings": [_matching(results, run, record) for run, record in last.items()],
        "most": MOST_NEURONS,
    }


def last_records(results: Tables) -> dict[str, dict[str, Any]]:
    """The last round of every run that has fused anything."""
    last = {record["run"]: record for record in results.records}
    return {run: record for run, record in last.items() if "fusion" in record}


def score_rows(results: Tables) -> list[dict[str, Any]]:
    """For each split, what local networks, their average, the fused networks and the ensemble reach.

    A value is that of a seed and, of local networks, of a client. A row that belongs to no single method has none.
    """
    last, summary, score = last_records(results), results.summary(), results.score
    if not last:
        return []
    table = with_baselines(results, summary.assign(method=summary["run"].map(results.names)))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for run, name, kind, value in table[["run", "method", "baseline", score]].itertuples(
        index=False
    ):
        if run not in last:
            continue
        method = None if kind and results.runs[run].rounds == 1 else results.names[run]
        about = {
            "split": _split(results, run),
            "name": name,
            "baseline": kind,
            "method": method,
            "values": [],
        }
        found = rows.setdefault((about["split"], name), about)["values"]
        seed, named = (
            f"seed {results.runs[run].seed}",
            [called(one) for one in results.client_names(run)],
        )
        dots = [(seed, value)]
        if kind == "alone":
            dots = [
                (f"{who}, {seed}", own)
                for who, own in zip(named, last[run]["fusion"]["alone"], strict=True)
            ]
        found += [
            {"who": who, "value": plain} for who, own in dots if (plain := rounded(own)) is not None
        ]
    known = [
        row | {"mean": fmean(one["value"] for one in row["values"])}
        for row in rows.values()
        if row["values"]
    ]
    return sorted(known, key=lambda row: KINDS.index(row["baseline"]))


def width_rows(results: Tables) -> list[dict[str, Any]]:
    """For each method and split, each hidden layer's width after fusion and before, and the seconds of matching."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run, record in last_records(results).items():
        cells.setdefault((_split(results, run), results.names[run]), []).append(record)
    spent: dict[str, float] = defaultdict(float)
    for record in results.records:
        spent[record["run"]] += record.get("matching_seconds") or 0.0
    return [
        {
            "split": split,
            "method": method,
            "layers": [_layer(mine, k) for k in range(len(mine[0]["fusion"]["widths"]))],
            "seconds": fmean(spent[record["run"]] for record in mine),
        }
        for (split, method), mine in cells.items()
    ]


def _layer(records: Sequence[dict[str, Any]], layer: int) -> dict[str, float]:
    local = [record["fusion"]["local_widths"][layer] for record in records]
    return {
        "fused": fmean(record["fusion"]["widths"][layer] for record in records),
        "local": fmean(map(sum, local)),
        "widest": fmean(map(max, local)),
    }


def _matching(results: Tables, run: str, record: dict[str, Any]) -> dict[str, Any]:
    """Who shares which neuron; not known before the run's last round."""
    fusion = record["fusion"]
    pairs = zip(fusion.get("assignment", []), fusion["widths"], strict=False)
    found = [Sharing.of(places, width) for places, width in pairs]
    layers = [
        {
            "local": one.local,
            "width": len(one.order),
            "shares": one.shares,
            "order": one.order if one.is_small else None,
            "places": one.places if one.is_small else None,
        }
        for one in found
    ]
    return {
        **about_run(results, run, [record]),
        "names": list(results.client_names(run)),
        "layers": layers,
    }


def _split(results: Tables, run: str) -> str:
    return str(results.labels[run][results.columns])
