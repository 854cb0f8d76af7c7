"""Fairness: the worst served client, the spread over clients, and who is a dot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playground import FAST
from stored import assert_best_is_marked, contents_of

import tacit
from tacit.report import client_curves
from tacit.report.curves import chart_data
from tacit.report.overview import overview
from tacit.report.page import render

TITLES = ["The worst served client", "Spread over clients"]
CROWD: dict[str, Any] = {
    "dataset": {"name": "function", "path": "own_code:make_crowd"},
    "model": "linear",
    "optimiser": {"name": "sgd", "lr": 0.1},
    "clients": 150,
    "selection": {"name": "fraction", "c": 0.1},
    "attackers": {"count": 60, "kind": "sign_flip"},
    "local_test": 0.25,
    "rounds": 2,
    "seed": [0, 1],
}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(CROWD, tmp_path_factory.mktemp("crowd") / "study")


def fairness_tables(results: tacit.Results) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = contents_of("fairness", results)["tables"]
    return tables


def last_tests(results: tacit.Results, run: str) -> pd.Series[float]:
    """The honest clients' local tests after the last round."""
    clients = results.client_frame().query("run == @run")
    last_round = clients[clients["round"] == clients["round"].max()]
    if "attacker" in last_round:
        last_round = last_round[~last_round["attacker"].astype(bool)]
    return last_round["test_accuracy"]


def test_a_cell_is_about_the_clients_of_each_run(results: tacit.Results) -> None:
    tables = fairness_tables(results)
    assert [table["title"] for table in tables] == TITLES
    seeds: dict[tuple[str, str], list[pd.Series[float]]] = {}
    for run, name in results.names.items():
        cell = (name, results.column_of(run))
        seeds.setdefault(cell, []).append(last_tests(results, run))
    worst, spread = tables
    for row in worst["rows"]:
        for cell in row["cells"]:
            figures = [tests.min() for tests in seeds[row["name"], cell["split"]]]
            assert cell["mean"] == f"{np.mean(figures):.4f}"
    for row in spread["rows"]:
        for cell in row["cells"]:
            figures = [tests.std(ddof=0) for tests in seeds[row["name"], cell["split"]]]
            assert cell["mean"] == f"{np.mean(figures):.4f}"


def test_the_highest_worst_client_and_the_lowest_spread_are_best(results: tacit.Results) -> None:
    worst, spread = fairness_tables(results)
    assert_best_is_marked(worst, max)
    assert_best_is_marked(spread, min)


def test_one_client_per_run_is_compared_with_nobody(tmp_path: Path) -> None:
    alone = tacit.run({**FAST, "clients": 1, "centralised": True}, tmp_path / "alone")
    assert {"worst", "spread"} <= set(alone.summary())
    assert fairness_tables(alone) == []
    page = render(alone)
    assert not any(title in page for title in TITLES)


def test_one_run_with_several_clients_is_enough_for_the_tables(tmp_path: Path) -> None:
    some = tacit.run({**FAST, "clients": [1, 3]}, tmp_path / "some")
    assert [table["title"] for table in fairness_tables(some)] == TITLES
    page = render(some)
    assert all(title in page for title in TITLES)


def test_the_dots_of_a_crowd_are_its_last_cohort_and_the_page_says_so(
    crowd: tacit.Results,
) -> None:
    for curve in chart_data(crowd)["clients"]:
        tests = last_tests(crowd, curve["run"])
        cohort = crowd.client_frame().loc[tests.index, "client"]
        assert 0 < len(cohort) < 15
        assert curve["last"]["names"] == [str(client) for client in cohort]
        scores = [rounds[0] for rounds in curve["last"]["test"]]
        assert scores == pytest.approx(tests.tolist(), rel=1e-4)
    page = " ".join(render(crowd).split())
    assert "With more than 100 clients, only those of the last round are shown" in page
    cautions = overview(crowd)["cautions"]
    assert any("are those of the last round's clients" in text for text in cautions)


def test_a_large_cohort_is_shown_in_part(
    crowd: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_curves, "MOST_DOTS", 3)
    for curve in chart_data(crowd)["clients"]:
        assert len(curve["last"]["names"]) == len(curve["last"]["test"]) == 3
