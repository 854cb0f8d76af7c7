"""Clients with one row of their own, or two: everything works, or is refused in one clear line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playground import FAST
from torch import nn

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.report.figures import write_figures

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no local test": {"local_test": 0.0},
    "nearly all for the local test": {"local_test": 0.9},
    "full batches": {"batch_size": None},
    "algorithms": {"algorithm": ["scaffold", "fednova", "fedplus", "local", "fedsgd"]},
    "momenta": {
        "algorithm": "fednag",
        "optimiser": {"name": "nesterov", "lr": 0.1, "momentum": 0.9},
    },
    "poisson": {"sampling": "poisson"},
    "fine-tuning": {"fine_tuning": 1},
    "stragglers": {"behaviour": "stragglers"},
    "reference": {"centralised": True},
    "fusion": {
        "fusion": ["pfnm", "average"],
        "initial": "different",
        "model": {"name": "mlp", "hidden": [4]},
    },
}


class Normal(nn.Sequential):
    """A model with BatchNorm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.BatchNorm1d(inputs), nn.Linear(inputs, outputs))


def table_of(rows: Sequence[int], folder: Path, *, numbers: bool = False) -> dict[str, Any]:
    """A study of a table in which client k has so many rows."""
    rng = np.random.default_rng(0)
    owner = np.repeat([f"client {k}" for k in range(len(rows))], rows)
    frame = pd.DataFrame(rng.normal(size=(len(owner), 2)), columns=["a", "b"]).assign(who=owner)
    frame["y"] = frame["a"] if numbers else np.where(frame["a"] > 0, "high", "low")
    frame.to_csv(folder / "table.csv", index=False)
    source = {"name": "table", "path": str(folder / "table.csv"), "target": "y", "client": "who"}
    return {**FAST, "dataset": source, "clients": len(rows), "split": "by_client"}


@pytest.mark.parametrize("rows", [[1, 2, 30, 30], [3, 2, 1, 1]], ids=str)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_client_with_one_row_takes_part(tmp_path: Path, kind: str, rows: list[int]) -> None:
    study = {**table_of(rows, tmp_path), **KINDS[kind]}
    results = tacit.run(study, tmp_path / "out", workers=1, on_event=[])
    assert (results.summary()["status"] == "finished").all()
    clients = results.client_frame()
    for run in results.runs:
        expected = 1 if "centralised" in run else len(rows)
        assert clients[clients["run"] == run]["client"].nunique() == expected


def test_one_row_has_no_batch_statistics_and_the_client_is_named(tmp_path: Path) -> None:
    study = {**table_of([1, 30, 30], tmp_path), "model": Normal}
    with pytest.raises(StudyError, match="BatchNorm needs two samples in a batch, and client 0"):
        tacit.run(study, tmp_path / "out", workers=1, on_event=[])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("clients", [100, 120])  # beyond 100 they are a crowd
def test_a_study_of_clients_with_one_row_each_has_a_report_and_figures(
    tmp_path: Path, clients: int
) -> None:
    study = {**FAST, "clients": clients, "rounds": 1}
    results = tacit.run(study, tmp_path / "out", workers=1, on_event=[])
    write_figures(results)
    assert (tmp_path / "out" / "figures" / "clients.png").exists()


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_a_table_with_one_row_per_client_leaves_none_to_test_on(
    tmp_path: Path, numbers: bool
) -> None:
    study = table_of([1] * 12, tmp_path, numbers=numbers)
    with pytest.raises(DataError, match="too few rows are left to test on, since every client"):
        tacit.run(study, tmp_path / "out", workers=1, on_event=[])
