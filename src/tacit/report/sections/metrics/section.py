"""All metrics side by side, how sure they are, and which differences are larger than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tacit.report.metric_frame import guess_name, metric_frame, metric_rows
from tacit.report.metric_texts import about_metric, title_of
from tacit.report.section import Section
from tacit.report.study_tables import StudyTables
from tacit.report.uncertainty import Limits, figure_limits, leads


class MetricsSection(Section):
    title = "All metrics"
    order = 15

    def is_shown(self, results: StudyTables) -> bool:
        return bool(results.records)

    def contents(self, results: StudyTables) -> dict[str, Any]:
        table = metric_frame(results)
        names = [str(name) for name in table.columns]
        limits = {name: figure_limits(results, str(name)) for name in table.columns}
        places = metric_rows(results)
        rows = []
        for label, figures in table.iterrows():
            place = places.get(str(label))  # that of a mere guess is nowhere
            cells = [_cell(figures, name, limits[name], place) for name in table.columns]
            rows.append({"name": str(label), "cells": cells, "place": place})
        data = results.data
        return {
            "titles": [title_of(name) for name in names],
            "rows": rows,
            "guess": guess_name(results),
            "about": [about_metric(name) for name in names],
            "positive": _positive(results),
            "reason": data.reason if data else "",
            "leads": leads(results),
        }


def _cell(
    figures: pd.Series[float],
    name: str,
    limits: Mapping[tuple[str, str], Limits],
    place: tuple[str, str] | None,
) -> dict[str, str]:
    value = float(figures[name])
    text = "" if math.isnan(value) else f"{value:.4f}"
    if not text or place is None or place not in limits:
        return {"text": text, "limits": ""}
    low, high = limits[place]
    return {"text": text, "limits": f"{low:.3f} to {high:.3f}"}


def _positive(results: StudyTables) -> str:
    """The positive classes, where there are two classes."""
    if results.data is None:
        return ""
    names = [dataset.positive for dataset in results.data.datasets if dataset.positive is not None]
    return " and ".join(dict.fromkeys(names))
