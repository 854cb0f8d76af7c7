"""What the page and the pictures show of fusions, as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tacit.report.baselines import with_baselines
from tacit.report.client_curves import describe_run
from tacit.report.neuron_sharing import Sharing
from tacit.report.pictures import client_title
from tacit.report.study_tables import StudyTables
from tacit.report.thinning import round_digits

# The baselines as they stand below each other; "" is a fused network.
ORDER = ("alone", "average", "", "ensemble")


def last_fusions(results: StudyTables) -> dict[str, dict[str, Any]]:
    """The last round of every run that has fused anything."""
    last = {record["run"]: record for record in results.records}
    return {run: record for run, record in last.items() if "fusion" in record}


def score_rows(results: StudyTables) -> list[dict[str, Any]]:
    """What local networks, their average, the fused networks and the ensemble reach, by split.

    A value is that of a seed and, of local networks, of a client. A row that belongs to no single
    method has none.
    """
    fusions = last_fusions(results)
    if not fusions:
        return []
    summary = results.summary()
    table = with_baselines(results, summary.assign(method=summary["run"].map(results.names)))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for run, name, baseline, score in table[
        ["run", "method", "baseline", results.score]
    ].itertuples(index=False):
        if run not in fusions:
            continue
        is_shared = bool(baseline) and results.outline.runs[run].rounds == 1
        split = results.column_of(run)
        row = {
            "split": split,
            "name": name,
            "baseline": baseline,
            "method": None if is_shared else results.names[run],
            "values": [],
        }
        values = rows.setdefault((split, name), row)["values"]
        if baseline == "alone":
            values += _client_scores(results, run, fusions[run]["fusion"]["alone"])
        else:
            values += _known_scores({f"seed {results.outline.runs[run].seed}": score})
    with_values = [row for row in rows.values() if row["values"]]
    for row in with_values:
        row["mean"] = fmean(dot["value"] for dot in row["values"])
    return sorted(with_values, key=lambda row: ORDER.index(row["baseline"]))


def _client_scores(
    results: StudyTables, run: str, scores: Sequence[float | None]
) -> list[dict[str, Any]]:
    """What the clients' own networks reach."""
    seed = results.outline.runs[run].seed
    names = [f"{client_title(name)}, seed {seed}" for name in results.client_names(run)]
    return _known_scores(dict(zip(names, scores, strict=True)))


def _known_scores(scores: dict[str, float | None]) -> list[dict[str, Any]]:
    """A dot for each score that is a number, and whose it is."""
    dots = []
    for name, score in scores.items():
        value = round_digits(score)
        if value is not None:
            dots.append({"who": name, "value": value})
    return dots


def width_rows(results: StudyTables) -> list[dict[str, Any]]:
    """For each method and split, each hidden layer's width after fusion and before it.

    `seconds` is the time of matching in all rounds. All are means over the seeds.
    """
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run, record in last_fusions(results).items():
        cell = (results.column_of(run), results.names[run])
        cells.setdefault(cell, []).append(record)
    seconds: dict[str, float] = defaultdict(float)
    for record in results.records:
        seconds[record["run"]] += record.get("matching_seconds") or 0.0
    rows = []
    for (split, method), records in cells.items():
        layers = range(len(records[0]["fusion"]["widths"]))
        row = {
            "split": split,
            "method": method,
            "layers": [_layer_widths(records, layer) for layer in layers],
            "seconds": fmean(seconds[record["run"]] for record in records),
        }
        rows.append(row)
    return rows


def _layer_widths(records: Sequence[dict[str, Any]], layer: int) -> dict[str, float]:
    fused = [record["fusion"]["widths"][layer] for record in records]
    local = [record["fusion"]["local_widths"][layer] for record in records]
    return {
        "fused": fmean(fused),
        "local": fmean(map(sum, local)),
        "widest": fmean(map(max, local)),
    }


def assigned_layers(results: StudyTables, run: str, record: dict[str, Any]) -> dict[str, Any]:
    """Who shares which neuron, layer by layer; not known before the run's last round."""
    fusion = record["fusion"]
    layers = []
    for places, width in zip(fusion.get("assignment", []), fusion["widths"], strict=False):
        sharing = Sharing.of(places, width)
        layer = {
            "local": sharing.local,
            "width": len(sharing.order),
            "shares": sharing.shares,
            "order": sharing.order if sharing.is_small else None,
            "places": sharing.places if sharing.is_small else None,
        }
        layers.append(layer)
    return {
        **describe_run(results, run, [record]),
        "names": list(results.client_names(run)),
        "layers": layers,
    }
