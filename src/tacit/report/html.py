"""The report: one page that opens offline."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from tacit.core.files import replacing
from tacit.engines.results import Results
from tacit.report.plots import draw_clients, draw_cost, draw_rounds

SCORES = {"accuracy": "accuracy", "r2": "R2"}
LOWEST = ("backdoor", "rmse")  # the less, the better
TEXTS = {
    "local_accuracy": "The mean of the clients' local test accuracies, with a model of their own where they have one.",
    "central_accuracy": "The same clients and samples, all with the global model.",
    "backdoor": "The share of triggered test samples that are taken for the attackers' target; the lowest in bold.",
}
SHOWN_PANELS = 12  # of clients' curves; all of them are in clients.csv


def write_report(results: Results) -> Path:
    """Writes report.html into the study's folder."""
    template = (Path(__file__).parent / "report.html.jinja").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
    with replacing(results.report) as file:
        file.write(page.render(_contents(results)))
    return results.report


def _contents(results: Results) -> dict[str, Any]:
    summary = results.summary()
    rounds, clients = (
        table.assign(algorithm=table["run"].map(results.names), split=table[results.columns])
        for table in (results.frame(), results.client_frame())
    )
    if results.seeds > 1:  # client k holds other samples under another seed
        clients = clients[clients["seed"] == clients["seed"].iloc[0]]
    pairs = clients.groupby(["algorithm", "split"], sort=False).ngroups
    few = clients if pairs <= SHOWN_PANELS else _first_pairs(clients)
    return {
        "name": results.study.name,
        "runs": len(results.runs),
        "seeds": results.seeds,
        "cautions": results.cautions,
        "tables": [_table(results, metric, title) for metric, title in results.titles.items()],
        "columns": results.columns,
        "summary": _number_texts(summary.drop(columns=["loss"])),
        "stopped": summary[~summary["status"].isin(["finished", "running"])][["run", "status", "round"]].to_dict(
            "records"
        ),
        "score": SCORES[results.score],
        "scores": draw_rounds(rounds, results.score, ylabel=f"global test {SCORES[results.score]}"),
        "loss": draw_rounds(rounds, "loss", ylabel="global test loss"),
        "cost": draw_cost(rounds, results.score, ylabel=f"global test {SCORES[results.score]}"),
        "clients": draw_clients(few, f"test_{results.score}", ylabel=f"local test {SCORES[results.score]}"),
        "hidden_panels": max(0, pairs - SHOWN_PANELS),
        "study": results.study.to_yaml(),
        "versions": _versions(),
    }


def _table(results: Results, metric: str, title: str) -> dict[str, Any]:
    means = results.table(metric).dropna(axis=1, how="all")
    rows = _table_rows(means, results.table(metric, "std"), lowest=metric in LOWEST)
    return {"title": title, "text": TEXTS.get(metric, ""), "columns": list(means.columns), "rows": rows}


def _first_pairs(clients: pd.DataFrame) -> pd.DataFrame:
    pairs = clients[["algorithm", "split"]].drop_duplicates().head(SHOWN_PANELS)
    return clients.merge(pairs, on=["algorithm", "split"])


def _table_rows(means: pd.DataFrame, deviations: pd.DataFrame, *, lowest: bool = False) -> list[dict[str, Any]]:
    """The comparison, with the best of each column marked."""
    best = means.min() if lowest else means.max()

    def cell(name: Any, split: Any) -> dict[str, Any]:
        mean, deviation = float(means.loc[name, split]), float(deviations.loc[name, split])
        text = "" if math.isnan(mean) else f"{mean:.4f}" if math.isnan(deviation) else f"{mean:.4f} ± {deviation:.4f}"
        return {"text": text, "best": mean == best[split]}

    return [{"name": name, "cells": [cell(name, split) for split in means.columns]} for name in means.index]


def _number_texts(table: pd.DataFrame) -> dict[str, Any]:
    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.4g}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    rows = [[text(value) for value in row] for row in table.astype(object).itertuples(index=False)]
    return {"columns": [name.replace("_", " ") for name in table.columns], "rows": rows}


def _versions() -> str:
    names = ("tacit", "torch", "numpy", "scikit-learn", "pandas")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # tacit, when it runs from its source folder
            continue
    return ", ".join([*found, f"Python {platform.python_version()}"])
