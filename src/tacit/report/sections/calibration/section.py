"""Calibration: whether probabilities mean what they say, and which classes are mixed up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.report.section import Drawings, Section
from tacit.report.sections.calibration.pictures import draw_calibration
from tacit.report.study_tables import StudyTables

MOST_RUNS = 40  # whose curves are drawn
MOST_MATRICES = 12
MOST_CLASSES = 12  # of a confusion matrix on the page
Curve = dict[str, Any]


class CalibrationSection(Section):
    title = "Calibration"
    order = 17

    def is_shown(self, results: StudyTables) -> bool:
        return bool(calibration_curves(results))

    def contents(self, results: StudyTables) -> dict[str, Any]:
        curves = calibration_curves(results)
        matrices = _matrices(results)
        return {
            "errors": [curve for curve in curves if curve["client"] is None],
            "thresholds": _thresholds(results),
            "matrices": matrices[:MOST_MATRICES],
            "more": max(0, len(matrices) - MOST_MATRICES),
            "two_classes": _has_two_classes(results),
        }

    def chart_data(self, results: StudyTables) -> Any:
        return calibration_curves(results)

    def drawings(self, results: StudyTables) -> Drawings:
        curves = calibration_curves(results)
        return {"calibration": lambda: draw_calibration(curves)} if curves else {}


def calibration_curves(results: StudyTables) -> list[Curve]:
    """The curves of every run's global model, and of the best run's clients on their own tests."""
    curves = []
    for run in list(results.labels)[:MOST_RUNS]:
        assessment = results.assessment(run)
        if assessment and "calibration" in assessment:
            curves.append(_curve(results, run, assessment, None))
    best = results.best_if_any()
    if not curves or best is None:
        return curves
    names = results.client_names(best)
    for client in (results.assessment(best) or {}).get("clients", []):
        if "calibration" in client:
            curves.append(_curve(results, best, client, names[client["client"]]))
    return curves


def _curve(
    results: StudyTables, run: str, findings: Mapping[str, Any], client: str | None
) -> Curve:
    """The points of bins that hold rows: mean probability, how often it was so, rows."""
    calibration = findings["calibration"]
    points = []
    for predicted, observed, rows in zip(
        calibration["predicted"], calibration["observed"], calibration["rows"], strict=True
    ):
        if rows and predicted is not None:
            points.append([predicted, observed, rows])
    return {
        "method": results.names[run],
        "split": results.column_of(run),
        "seed": results.outline.runs[run].seed,
        "client": client,
        "points": points,
        "error": calibration["error"],
    }


def _thresholds(results: StudyTables) -> dict[str, Any] | None:
    """What the best run's model finds from several probabilities on; None unless two classes."""
    best = results.best_if_any()
    rows = (results.assessment(best) or {}).get("thresholds") if best else None
    if best is None or not rows:
        return None
    shown = []
    for row in rows:
        taken = row["found"] + row["alarms"]
        shown.append(
            {
                "threshold": row["threshold"],
                "found": f"{row['found']:,} of {row['positives']:,}",
                "alarms": f"{row['alarms']:,} of {row['negatives']:,}",
                "sensitivity": _share(row["found"], row["positives"]),
                "specificity": _share(row["negatives"] - row["alarms"], row["negatives"]),
                "precision": _share(row["found"], taken),
            }
        )
    return {"run": f"{results.names[best]}, {results.column_of(best)}", "rows": shown}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.4f}" if whole else ""


def _has_two_classes(results: StudyTables) -> bool:
    if results.data is None:
        return False
    return all(dataset.positive is not None for dataset in results.data.datasets)


def _matrices(results: StudyTables) -> list[dict[str, Any]]:
    """The confusion matrix of each method's first run."""
    matrices = []
    shown = set()
    for run in results.labels:
        cell = (results.names[run], results.column_of(run))
        matrix = (results.assessment(run) or {}).get("confusion")
        dataset = results.data.of(run) if results.data else None
        if cell in shown or not matrix or dataset is None or len(matrix) > MOST_CLASSES:
            continue
        if len(matrix) != len(dataset.labels):
            continue
        shown.add(cell)
        rows = []
        for label, counts in zip(dataset.labels, matrix, strict=True):
            total = max(1, sum(counts))
            cells = [{"count": f"{count:,}", "shade": count / total} for count in counts]
            rows.append({"label": label, "cells": cells})
        matrices.append(
            {"method": cell[0], "split": cell[1], "labels": dataset.labels, "rows": rows}
        )
    return matrices
