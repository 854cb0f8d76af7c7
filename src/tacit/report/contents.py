"""What the page shows, for its template."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tacit.report.curves import SCORES, chart_data, is_reference
from tacit.report.fusions import fusion_data, width_rows
from tacit.report.tables import Tables
from tacit.study.question import ask, varied_and_same
from tacit.study.tested_clients import ALL_TESTED, is_crowd

LEAST_WIDTH = 0.05  # of a score's shades: smaller differences stay pale
FEW_TESTS = 10  # samples of a client's local test, of which a share says little
LOWEST_IS_BEST = {"backdoor", "spread", "loss", "rmse"}
LEGEND = {
    "best": "The best of all rounds. It is chosen on the test set, so it flatters.",
    "local": "The mean of the clients' local test results, with a model of their own where they have one.",
    "central": "The same clients and samples, all with the global model.",
    "backdoor": "The share of triggered test samples that are taken for the attackers' target; the lowest in bold.",
    "worst": "The lowest local test result of an honest client.",
    "spread": "The standard deviation of the honest clients' local test results; the lowest in bold.",
}


def contents(results: Tables) -> dict[str, Any]:
    """Everything that the template needs."""
    summary, score = results.summary(), results.score
    varied, same = varied_and_same(results.study.runs())
    done = summary["status"].ne("running").sum() if len(summary) else 0
    return {
        "name": results.study.name,
        "question": ask(results.study.runs()),
        "varied": varied,
        "same": same,
        "runs": len(results.runs),
        "done": int(done),
        "seeds": results.seeds,
        "score": SCORES[score],
        "cautions": [*results.cautions, *_small_tests(results), *_cohorts(results)],
        "all_tested": ALL_TESTED,
        "waiting": _waiting(results),
        "stopped": _stopped(summary),
        "diverged": len(summary) > 0 and bool((summary["status"] == "diverged").any()),
        "comparison": [
            _table(results, metric, title) for metric, title in _compared(results).items()
        ],
        "fairness": [_table(results, metric, title) for metric, title in _fair(results).items()],
        "reference": _reference(results),
        "costs": _costs(results),
        "summary": _number_texts(summary.drop(columns=["loss"], errors="ignore")),
        "columns": results.columns,
        "study": results.study.to_yaml(),
        "environment": results.environment,
        "encoding": results.encoding.describe() if results.encoding else [],
        "fused": _fused(results),
        "data": {**chart_data(results), "fusion": fusion_data(results)},
    }


def _compared(results: Tables) -> dict[str, str]:
    """The tables' titles by metric; the best of all rounds comes second."""
    titles = list(results.titles.items())
    best = (f"best_{results.score}", f"Best {SCORES[results.score]} of any round")
    return dict([*titles[:1], best, *titles[1:]]) if titles else {}


def _fair(results: Tables) -> dict[str, str]:
    several = any(run.clients > 1 for run in results.runs.values() if not run.is_reference)
    titles = {"worst": "The worst served client", "spread": "Spread over clients"}
    return {name: title for name, title in titles.items() if several and name in results.summary()}


def _table(results: Tables, metric: str, title: str) -> dict[str, Any]:
    """The comparison, with the best of each column marked and a shade from 0 to 1 for every cell.

    A cell of which a run is still going, or not begun, says so and is not compared.
    """
    central = [name for name in dict.fromkeys(results.names.values()) if is_reference(name)]
    means = results.table(metric)
    if len(central) < len(set(results.names.values())):
        means = means.drop(index=central, errors="ignore")  # they may not have begun
    means = means.dropna(axis=1, how="all").round(
        4
    )  # what a reader cannot tell apart is no difference
    deviations, lowest, going = (
        results.table(metric, "std"),
        metric in LOWEST_IS_BEST,
        _going(results),
    )
    done = means.where(
        ~pd.DataFrame({c: [(n, c) in going for n in means.index] for c in means}, index=means.index)
    )
    best = done.min() if lowest else done.max()
    tied = done.nunique() < 2
    low, high = float(means.min().min()), float(means.max().max())
    floor = (
        max(low, -1.0) if metric.endswith("r2") else low
    )  # one that goes astray would leave all others one shade
    width = max(high - floor, LEAST_WIDTH if metric not in ("loss", "rmse") else 0.0)

    def cell(name: Any, column: Any) -> dict[str, Any]:
        mean, deviation = float(means.loc[name, column]), float(deviations.loc[name, column])
        shade = 0.0 if not width or math.isnan(mean) else min(1.0, max(0.0, (mean - floor) / width))
        return {
            "mean": "" if math.isnan(mean) else _digits(mean),
            "deviation": "" if math.isnan(mean) or math.isnan(deviation) else _digits(deviation),
            "best": bool(done.loc[name, column] == best[column] and not tied[column]),
            "shade": 1 - shade if lowest else shade,
            "split": column,
            "going": going.get((name, column), ""),
        }

    rows = [
        {"name": name, "cells": [cell(name, column) for column in means.columns]}
        for name in means.index
    ]
    ends = (high, floor) if lowest else (floor, high)
    return {
        "id": metric,
        "title": title,
        "text": LEGEND.get(metric.split("_")[0], ""),
        "columns": list(means.columns),
        "rows": rows,
        "reference": _reference(results) if metric == results.score else "",
        "span": " to ".join(_digits(end) for end in ends) if floor < high else "",
    }


def _going(results: Tables) -> dict[tuple[str, str], str]:
    """The cells that are not final yet, and how far their runs have come."""
    reached = {record["run"]: (record["round"], record["status"]) for record in results.records}
    found: dict[tuple[str, str], list[str]] = {}
    for id, run in results.runs.items():
        round, status = reached.get(id, (0, "running"))
        if status == "running":
            place = (results.names[id], str(results.labels[id][results.columns]))
            found.setdefault(place, []).append(f"round {round} of {run.rounds}")
    return {place: texts[0] for place, texts in found.items()}


def _digits(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3g}"


def _reference(results: Tables) -> str:
    """What all the data in one place give; named where there are several."""
    central = [name for name in dict.fromkeys(results.names.values()) if is_reference(name)]
    if not central or len(central) == len(set(results.names.values())) or results.summary().empty:
        return ""
    means, deviations = (results.table(None, statistic) for statistic in ("mean", "std"))
    texts = []
    for name in (name for name in central if name in means.index):
        for mean, spread in zip(means.loc[name], deviations.loc[name], strict=True):
            if not math.isnan(mean):
                said = _digits(mean) + ("" if math.isnan(spread) else f" ± {_digits(spread)}")
                which = name.removeprefix("centralised, ")
                texts.append(f"{which}: {said}" if len(central) > 1 else said)
    return "; ".join(texts)


def _costs(results: Tables) -> list[dict[str, str]]:
    """A row per method: what a run of it costs, on average."""
    summary = results.summary()
    if summary.empty:
        return []
    summary = summary.assign(method=summary["run"].map(results.names))
    wanted = ["round", "bytes_up", "bytes_down", f"{results.score}_per_mb", "seconds"]
    means = summary.groupby("method", sort=False)[wanted].mean()
    rows = []
    for name, row in means.iterrows():
        up, down = (f"{row[key] / 1e6:,.3g}" for key in ("bytes_up", "bytes_down"))
        per = row[f"{results.score}_per_mb"]
        rows.append(
            {
                "method": str(name),
                "rounds": f"{row['round']:,.4g}",
                "up": up,
                "down": down,
                "per_mb": "" if math.isnan(per) else f"{per:.3g}",
                "seconds": f"{row['seconds']:,.3g}",
                "each": f"{1000 * row['seconds'] / row['round']:,.3g}",
            }
        )
    return rows


def _fused(results: Tables) -> dict[str, list[dict[str, str]]]:
    """For each split a row per fusion: widths and the time of matching, on average over the seeds."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in width_rows(results):
        widths = {
            key: ", ".join(f"{layer[key]:,.5g}" for layer in row["layers"])
            for key in row["layers"][0]
        }
        found.setdefault(row["split"], []).append(
            {"method": row["method"], **widths, "time": f"{row['seconds']:,.3g}"}
        )
    return found


def _small_tests(results: Tables) -> list[str]:
    """A word about clients whose local test is too small to tell much."""
    sizes = [
        (sum(one.test[k]), one.split, name)
        for one in results.portraits
        for k, name in enumerate(one.clients)
    ]
    if (
        not any(size for size, _, _ in sizes) or min(sizes)[0] >= FEW_TESTS
    ):  # none at all is what the study asked for
        return []
    least, split, name = min(sizes)
    return [
        f"some clients test on fewer than {FEW_TESTS} samples (client {name} under {split} on {least}), so their own"
        " results, the worst one and the spread say little"
    ]


def _cohorts(results: Tables) -> list[str]:
    """A word about clients that are tested only when they take part."""
    if not any(map(is_crowd, results.runs.values())):
        return []
    return [
        f"of more than {ALL_TESTED} clients a round tests and records those that take part in it alone, so the clients'"
        " own results, the worst one and the spread are of the last round's"
    ]


def _waiting(results: Tables) -> list[str]:
    """Methods of which no run has begun."""
    begun = {results.names[record["run"]] for record in results.records}
    return [name for name in dict.fromkeys(results.names.values()) if name not in begun]


def _stopped(summary: pd.DataFrame) -> list[dict[str, Any]]:
    if summary.empty:
        return []
    early = summary[~summary["status"].isin(["finished", "running"])]
    return [
        {"run": row.run, "round": row.round, "status": row.status} for row in early.itertuples()
    ]


def _number_texts(table: pd.DataFrame) -> dict[str, Any]:
    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.4g}"
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )

    rows = [[text(value) for value in row] for row in table.astype(object).itertuples(index=False)]
    return {"columns": [str(name).replace("_", " ") for name in table.columns], "rows": rows}
