"""A table of the comparison as the page shows it: means, deviations, and a shade for every cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tacit.report.metric_frame import guess_figures, guess_name
from tacit.report.study_tables import StudyTables
from tacit.training.metrics import METRICS, Metric

LEAST_WIDTH = 0.05  # of a score's shades: smaller differences stay pale
LOWEST_IS_BEST = ("backdoor", "spread", "loss")  # beside those of the metrics
LEGEND = {
    "best": "The best of all rounds. It is chosen on the test set, so it is too optimistic.",
    "local": (
        "The mean of the clients' local test results, each with its own model if it has one, else"
        " with the global model."
    ),
    "central": "The same clients and samples, all with the global model.",
    "backdoor": (
        "The share of triggered test samples that are taken for the attackers' target; the lowest"
        " in bold."
    ),
    "worst": "The worst local test result of an honest client.",
    "spread": (
        "The standard deviation of the honest clients' local test results; the lowest in bold."
    ),
}
Cell = tuple[str, str]  # a method and a column


@dataclass(frozen=True)
class Shades:
    """How dark a value is: from 0 for the worst to 1 for the best."""

    low: float
    high: float
    width: float
    lowest_is_best: bool

    @classmethod
    def of(cls, metric: str, means: pd.DataFrame) -> Shades:
        low = float(means.min().min())
        high = float(means.max().max())
        if metric.endswith("r2"):  # one run that goes astray would leave all others one shade
            low = max(low, -1.0)
        known = _known_metric(metric)
        is_unbounded = metric == "loss" or (known is not None and known.in_units)
        least = 0.0 if is_unbounded else LEAST_WIDTH
        lowest_is_best = metric in LOWEST_IS_BEST or (known is not None and known.lowest_is_best)
        return cls(low, high, max(high - low, least), lowest_is_best)

    def __call__(self, value: float) -> float:
        shade = 0.0
        if self.width and not math.isnan(value):
            shade = min(1.0, max(0.0, (value - self.low) / self.width))
        return 1 - shade if self.lowest_is_best else shade

    @property
    def span(self) -> str:
        """From the palest value to the darkest, in words."""
        if not self.low < self.high:
            return ""
        low, high = write_number(self.low), write_number(self.high)
        return f"{high} to {low}" if self.lowest_is_best else f"{low} to {high}"


def heat_table(results: StudyTables, metric: str, title: str) -> dict[str, Any]:
    """The comparison by one metric, with the best cell of each column marked.

    A cell of which a run is still going, or not begun, says so and is not compared.
    """
    means = _method_means(results, metric)
    deviations = results.table(metric, "std")
    shades = Shades.of(results.score if metric == "worst" else metric, means)
    unfinished = _unfinished_cells(results)
    best = _best_cells(means, unfinished, lowest=shades.lowest_is_best)
    rows = []
    for method in means.index:
        cells = []
        for column in means.columns:
            mean = float(means.loc[method, column])
            deviation = float(deviations.loc[method, column])
            cell = {
                "mean": _write_if_known(mean),
                "deviation": "" if math.isnan(mean) else _write_if_known(deviation),
                "best": (method, column) in best,
                "shade": shades(mean),
                "split": column,
                "going": unfinished.get((method, column), ""),
            }
            cells.append(cell)
        rows.append({"name": method, "cells": cells})
    return {
        "id": metric,
        "title": title,
        "text": LEGEND.get(metric.split("_")[0], ""),
        "columns": list(means.columns),
        "rows": rows,
        "reference": reference_text(results) if metric == results.score else "",
        "span": shades.span,
        "guess": _guess(results, metric, list(means.columns)),
        "guess_name": guess_name(results),
    }


def _guess(results: StudyTables, metric: str, columns: list[str]) -> list[str]:
    """What a model that has learnt nothing reaches, by column; empty if that is not known."""
    figures = guess_figures(results, metric) if metric in METRICS else {}
    texts = [write_number(figures[column]) if column in figures else "" for column in columns]
    return texts if any(texts) else []


def _known_metric(column: str) -> Metric | None:
    """The metric of a column such as rmse, best_rmse or local_rmse."""
    for prefix in ("", "best_", "local_", "central_"):
        name = column.removeprefix(prefix)
        if name in METRICS:
            return METRICS[name]
    return None


def reference_text(results: StudyTables) -> str:
    """The score of all the data in one place; with its name where there are several references."""
    references = results.references
    if not references or not results.methods or results.summary().empty:
        return ""
    means = results.table()
    deviations = results.table(None, "std")
    texts = []
    for name in references:
        if name not in means.index:
            continue
        row = zip(means.columns, means.loc[name], deviations.loc[name], strict=True)
        known = [cell for cell in row if not math.isnan(cell[1])]
        for column, mean, deviation in known:
            text = write_number(mean)
            if len(known) > 1:
                text = f"{column} {text}"
            if not math.isnan(deviation):
                text += f" ± {write_number(deviation)}"
            if len(references) > 1:
                text = f"{name.removeprefix('centralised, ')}: {text}"
            texts.append(text)
    return "; ".join(texts)


def write_number(value: float) -> str:
    """Four digits behind the point; of very large numbers, three digits in all."""
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3g}"


def _write_if_known(value: float) -> str:
    return "" if math.isnan(value) else write_number(value)


def _method_means(results: StudyTables, metric: str) -> pd.DataFrame:
    """The means of all methods; the references have a line of their own."""
    means = results.table(metric)
    if results.methods:
        means = means.drop(index=results.references, errors="ignore")  # some may not have begun
    means = means.dropna(axis=1, how="all")
    return means.round(4)  # what a reader cannot tell apart is no difference


def _best_cells(means: pd.DataFrame, unfinished: dict[Cell, str], *, lowest: bool) -> set[Cell]:
    """The best finished cells of each column, unless all of its cells are equal."""
    best = set()
    for column in means.columns:
        finished = {}
        for method in means.index:
            mean = float(means.loc[method, column])
            if (method, column) not in unfinished and not math.isnan(mean):
                finished[method] = mean
        if len(set(finished.values())) < 2:
            continue
        target = min(finished.values()) if lowest else max(finished.values())
        best |= {(method, column) for method, mean in finished.items() if mean == target}
    return best


def _unfinished_cells(results: StudyTables) -> dict[Cell, str]:
    """The cells that are not final yet, and how far their first run has come."""
    last = {record["run"]: record for record in results.records}
    cells: dict[Cell, str] = {}
    for id, run in results.outline.runs.items():
        record = last.get(id, {"round": 0, "status": "running"})
        if record["status"] == "running":
            cell = (results.names[id], results.column_of(id))
            cells.setdefault(cell, f"round {record['round']} of {run.rounds}")
    return cells
