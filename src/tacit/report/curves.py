"""The numbers that the page's charts are drawn from: every run, round by round."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from tacit.report.client_curves import client_curves
from tacit.report.study_tables import StudyTables
from tacit.report.thinning import choose_rounds, round_digits

MOST_ROUNDS = 400  # of a curve


def chart_data(results: StudyTables) -> dict[str, Any]:
    """The numbers that charts of several sections have in common, as plain lists."""
    methods = results.methods
    references = results.references
    return {
        "score": results.score,
        "score_name": results.score_name,
        "columns": results.columns,
        "methods": methods or references,
        "references": references if methods else [],
        "splits": results.column_names,
        "curves": global_curves(results),
        **client_curves(results),
        "crowds": any(map(results.is_crowd, results.outline.runs)),
    }


def global_curves(results: StudyTables) -> list[dict[str, Any]]:
    """Each run's score and loss on the test set, and what it has cost up to each round."""
    rounds = results.frame()
    if rounds.empty:
        return []
    shown_rounds = choose_rounds(max(rounds["round"]), MOST_ROUNDS)
    curves = []
    for run, figures in rounds.groupby("run", sort=False):
        shown = figures["round"].isin(shown_rounds)
        megabytes = figures["bytes_up"].cumsum() / 1e6
        seconds = figures["seconds"].cumsum()
        curve = {
            "run": run,
            "method": results.names[str(run)],
            "split": results.column_of(str(run)),
            "seed": results.outline.runs[str(run)].seed,
            "status": str(figures["status"].iloc[-1]),
            "round": figures["round"][shown].tolist(),
            "score": _numbers(figures[results.score][shown]),
            "loss": _numbers(figures["loss"][shown]),
            "mb": [round_digits(value, 6) for value in megabytes[shown]],
            "time": [round_digits(value, 4) for value in seconds[shown]],
        }
        curves.append(curve)
    return curves


def _numbers(values: pd.Series[float]) -> list[float | None]:
    """JSON has no NaN: what is not a number is null."""
    return [None if math.isnan(value) else float(value) for value in values]
