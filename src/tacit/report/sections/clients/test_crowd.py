"""The report of very many clients, where each round records its cohort only."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import tacit
from tacit.report.curves import chart_data
from tacit.report.page import render

STUDY: dict[str, Any] = {
    "dataset": {"name": "function", "path": "own_code:make_crowd"},
    "model": "linear",
    "optimiser": {"name": "sgd", "lr": 0.1},
    "clients": 400,
    "selection": {"name": "fraction", "c": 0.05},
    "attackers": {"count": 160, "kind": "sign_flip"},
    "local_test": 0.25,
    "algorithm": ["fedavg", "scaffold"],
    "seed": [0, 1],
    "rounds": 4,
    "centralised": True,
}
ONE_RUN = {**STUDY, "attackers": "none", "algorithm": "fedavg", "seed": 0, "rounds": 2}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(STUDY, tmp_path_factory.mktemp("crowd") / "study")


def honest(crowd: tacit.Results, run: str) -> pd.DataFrame:
    table = crowd.client_frame().query("run == @run")
    return table[~table["attacker"].astype(bool)]


def test_a_crowds_lines_are_the_highest_the_median_and_the_lowest_of_each_round(
    crowd: tacit.Results,
) -> None:
    data = chart_data(crowd)
    assert data["crowds"]
    assert len(data["clients"]) == 4  # the centralised reference has no clients of its own
    fields = {"test": "test_accuracy", "train": "train_accuracy", "test_loss": "test_loss"}
    for curve in data["clients"]:
        by_round = honest(crowd, curve["run"]).groupby("round")
        assert curve["names"] == ["highest", "median", "lowest"]
        for kind, field in fields.items():
            highest, median, lowest = curve[kind]
            assert highest == pytest.approx(by_round[field].max().tolist(), rel=1e-4)
            assert median == pytest.approx(by_round[field].median().tolist(), rel=1e-4)
            assert lowest == pytest.approx(by_round[field].min().tolist(), rel=1e-4)


def test_few_clients_are_not_called_a_crowd(tmp_path_factory: pytest.TempPathFactory) -> None:
    few = tacit.run({**ONE_RUN, "clients": 20}, tmp_path_factory.mktemp("few") / "study")
    data = chart_data(few)
    assert not data["crowds"]
    assert "last" not in data["clients"][0]
    assert "more than 100 clients" not in render(few)


def test_a_crowd_and_a_few_share_a_page(tmp_path_factory: pytest.TempPathFactory) -> None:
    both = tacit.run({**ONE_RUN, "clients": [20, 150]}, tmp_path_factory.mktemp("both") / "study")
    data = chart_data(both)
    assert [len(curve["names"]) for curve in data["clients"]] == [20, 3]
    assert json.dumps(data, allow_nan=False)
    assert both.plot("clients")._repr_png_()


def test_pictures_of_a_crowd_are_drawn(crowd: tacit.Results) -> None:
    for kind in ("accuracy", "loss", "cost", "clients", "comparison", "splits"):
        assert crowd.plot(kind)._repr_png_()
