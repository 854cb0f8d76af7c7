"""The head of the page: what the study asks, how far it is, and what a reader should know."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tacit.report.findings import find
from tacit.report.heat_table import reference_text
from tacit.report.study_tables import StudyTables
from tacit.study.tested_clients import ALL_TESTED

FEW_TESTS = 10  # samples of a client's local test, of which a share says little


def overview(results: StudyTables) -> dict[str, Any]:
    """What the page's own template needs; sections may use it too."""
    summary = results.summary()
    outline = results.outline
    statuses = list(summary["status"]) if len(summary) else []
    return {
        "name": outline.name,
        "question": outline.question,
        "varied": outline.varied,
        "same": outline.same,
        "runs": len(outline.runs),
        "done": sum(status != "running" for status in statuses),
        "diverged": "diverged" in statuses,
        "stopped": _stopped_runs(summary),
        "seeds": results.seeds,
        "score": results.score_name,
        "columns": results.columns,
        "reference": reference_text(results),
        "findings": find(results),
        "cautions": [*results.cautions, *_small_tests(results), *_crowds(results)],
        "all_tested": ALL_TESTED,
    }


def _stopped_runs(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """The runs that ended before their last round."""
    if summary.empty:
        return []
    early = summary[~summary["status"].isin(["finished", "running"])]
    stopped = []
    for row in early.itertuples():
        stopped.append({"run": row.run, "round": row.round, "status": row.status})
    return stopped


def _small_tests(results: StudyTables) -> list[str]:
    """A word about clients whose local test is too small to tell much."""
    sizes = []
    for portrait in results.portraits:
        for client, counts in zip(portrait.clients, portrait.test, strict=True):
            sizes.append((sum(counts), portrait.split, client))
    if not any(size for size, _, _ in sizes):  # the study asked for no local tests
        return []
    least, split, client = min(sizes)
    if least >= FEW_TESTS:
        return []
    return [
        f"some clients test on fewer than {FEW_TESTS} samples (client {client} under {split} on"
        f" {least}), so their own results, the worst one and the spread mean little"
    ]


def _crowds(results: StudyTables) -> list[str]:
    """A word about clients that are tested only when they take part."""
    if not any(map(results.is_crowd, results.outline.runs)):
        return []
    return [
        f"with more than {ALL_TESTED} clients, a round tests and records only those that take part"
        " in it, so the clients' own results, the worst one and the spread are those of the last"
        " round's clients"
    ]
