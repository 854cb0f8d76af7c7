"""Lines of the global model, where runs are long or go astray."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from stored import history_of, with_history

import tacit
from tacit.report.curves import chart_data
from tacit.report.sections.rounds import pictures


def test_seeds_of_unequal_length_are_thinned_alike(results: tacit.Results, tmp_path: Path) -> None:
    record = history_of(results)[0]
    runs = [run for run in results.runs if results.names[run] == "fedavg"]
    records = []
    for run, length in ((runs[0], 900), (runs[1], 800)):
        records += [{**record, "run": run, "round": number + 1} for number in range(length)]
    long, short = chart_data(with_history(results, tmp_path, records))["curves"]
    assert len(long["round"]) == 400
    assert short["round"] == [round for round in long["round"] if round <= 800]


def test_a_loss_that_explodes_does_not_flatten_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = []
    monkeypatch.setattr(pictures, "use_logarithms", lambda _panel, axis: axes.append(axis))
    for last in (2.0, 1e9):
        rounds = pd.DataFrame(
            {
                "algorithm": ["calm"] * 3 + ["wild"] * 3,
                "split": "iid",
                "round": [1, 2, 3] * 2,
                "loss": [2.0, 1.5, 1.0, 2.0, 1.5, last],
            }
        )
        pictures.draw_rounds(rounds, "loss", ylabel="loss")
    assert axes == ["y"]
