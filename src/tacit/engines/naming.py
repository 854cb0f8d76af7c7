"""Short names for the runs of a study: what tells them apart, and no more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tacit.engines.study import SETTINGS, Run, describe

ALWAYS = ("algorithm", "split")


def label_runs(runs: Sequence[Run]) -> list[dict[str, str]]:
    """For each run, the settings that vary in the study as short texts; algorithm and split always.

    >>> from tacit.engines.study import Study
    >>> label_runs(Study(algorithm={"name": "fedprox", "mu": [0.1, 1]}).runs())[1]
    {'split': 'iid', 'algorithm': 'fedprox(mu=1)'}
    """
    plain = [describe(run) for run in runs]
    varying = [key for key in SETTINGS if key in ALWAYS or len({str(one[key]) for one in plain}) > 1]
    shown = [
        key for key in varying if key not in ("centralised", "clients") or not any(run.centralised for run in runs)
    ]
    columns = {key: _short_texts([one[key] for one in plain]) for key in shown}
    labels = [{key: columns[key][k] for key in shown} for k in range(len(runs))]
    for run, label in zip(runs, labels, strict=True):
        if run.centralised:
            label.update(algorithm="centralised", split="all data")
    return labels


def run_ids(labels: Sequence[dict[str, str]]) -> list[str]:
    """A unique id per run, fit for a file's name."""
    slugs = [
        re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(_part(*item) for item in label.items())).strip("-") for label in labels
    ]
    return [f"{k:03d}-{slug[:80]}" for k, slug in enumerate(slugs)]


def _part(key: str, text: str) -> str:
    return text if key in (*ALWAYS, "dataset", "model", "optimiser", "combiner") else f"{key}{text}"


def _short_texts(values: list[Any]) -> list[str]:
    """`fedprox(mu=0.1)`: a name with the fields in which values of that name differ."""
    texts = []
    for value in values:
        if not isinstance(value, dict):
            texts.append(_text(value))
            continue
        twins = [other for other in values if other["name"] == value["name"]]
        differing = [key for key in value if len({str(twin[key]) for twin in twins}) > 1]
        inner = ", ".join(f"{key}={_text(value[key])}" for key in differing)
        texts.append(f"{value['name']}({inner})" if inner else value["name"])
    return texts


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
