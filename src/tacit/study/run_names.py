"""Short names for the runs of a study: what tells them apart, and no more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tacit.data.tables import Table
from tacit.study.kinds.reference import REFERENCE
from tacit.study.run import Run
from tacit.study.settings import METHODS, describe
from tacit.study.texts import plain, short_values, text

ALWAYS = ("algorithm", "split")


def label_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run, the settings that vary in the study, methods as short texts; algorithm and split always.

    >>> from tacit.study.study import Study
    >>> label_runs(Study(algorithm={"name": "fedprox", "mu": [0.1, 1]}).runs())[1]
    {'split': 'iid', 'algorithm': 'fedprox(mu=1)'}
    """
    every = [_described(run) for run in runs]
    compared = [about for run, about in zip(runs, every, strict=True) if not run.is_reference]
    compared = compared or every  # a reference has one client, whatever varies
    varying = [key for key in every[0] if key in ALWAYS or _varies(key, compared)]
    columns = {key: short_values([about[key] for about in every]) for key in varying}
    labels = [{key: columns[key][k] for key in varying} for k in range(len(runs))]
    return [{**label, **run.label} for run, label in zip(runs, labels, strict=True)]


def _described(run: Run) -> dict[str, Any]:
    """The run's settings, its method under `algorithm`, whatever setting names it."""
    about = describe(run)
    about["algorithm"] = about[run.method_setting]
    return {key: value for key, value in about.items() if key == "algorithm" or key not in METHODS}


def _varies(key: str, settings: Sequence[dict[str, Any]]) -> bool:
    return len({str(about[key]) for about in settings}) > 1


def run_ids(labels: Sequence[dict[str, Any]]) -> list[str]:
    """A unique id per run, fit for a file's name."""
    texts = ["_".join(_part(key, text(value)) for key, value in label.items()) for label in labels]
    slugs = [re.sub(r"[^A-Za-z0-9.+]+", "-", text).strip("-") for text in texts]
    return [f"{k:03d}-{slug[:80]}" for k, slug in enumerate(slugs)]


def encoding_files(runs: Sequence[Run]) -> dict[str, str]:
    """For each table of the study, by its settings as text, the file that holds its encoding."""
    tables = dict.fromkeys(
        str(plain(run.dataset)) for run in runs if isinstance(run.dataset, Table)
    )
    return {
        table: f"encoding-{k}.json" if k > 1 else "encoding.json"
        for k, table in enumerate(tables, 1)
    }


def table_columns(labels: Sequence[dict[str, Any]]) -> str:
    """The setting that a table has its columns for: the split, or the attackers where only they vary."""
    proper = [label for label in labels if label["algorithm"] != REFERENCE] or labels
    return (
        "attackers"
        if "attackers" in proper[0] and len({label["split"] for label in proper}) == 1
        else "split"
    )


def row_names(labels: Sequence[dict[str, Any]]) -> list[str]:
    """What a run is called in a table that averages over seeds: whatever varies but the column's setting."""
    skipped = {"algorithm", "split", "seed", table_columns(labels)}
    central = [label for label in labels if label["algorithm"] == REFERENCE]
    single = len({label["algorithm"] for label in labels} - {REFERENCE}) == 1
    same = {
        key for key in labels[0] if len({str(label[key]) for label in central}) == 1
    }  # says nothing of a reference

    def name(label: dict[str, Any]) -> str:
        reference = label in central
        rest = [key for key in label if key not in skipped and not (reference and key in same)]
        parts = [f"{key}={text(label[key])}" for key in rest]
        return ", ".join(
            parts if parts and single and not reference else [label["algorithm"], *parts]
        )

    return [name(label) for label in labels]


def _part(key: str, shown: str) -> str:
    return (
        shown if key in (*ALWAYS, "dataset", "model", "optimiser", "combiner") else f"{key}-{shown}"
    )
