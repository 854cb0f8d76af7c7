"""The clients' curves: attackers are named, and very many curves are thinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from playground import COMPARED

import tacit
from tacit.report import client_curves
from tacit.report.curves import chart_data
from tacit.report.page import render


def test_very_many_curves_are_thinned_and_the_page_says_so(
    results: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chart_data(results)["clients_note"] == ""
    monkeypatch.setattr(client_curves, "MOST_VALUES", 50)
    monkeypatch.setattr(client_curves, "MOST_CLIENTS", 2)
    data = chart_data(results)
    assert {curve["seed"] for curve in data["clients"]} == {0}
    assert {len(curve["names"]) for curve in data["clients"]} == {2}
    assert data["clients_note"] == "seed 0, the first 2 of 3 clients, 2 of 4 rounds"
    assert data["clients_note"] in render(results)


def test_attackers_are_named_in_the_curves(tmp_path: Path) -> None:
    attack = {"clients": 5, "attackers": {"count": 2, "kind": "sign_flip"}}
    one_run = {"algorithm": "fedavg", "seed": 0, "split": "iid", "centralised": False}
    attacked = tacit.run({**COMPARED, **attack, **one_run}, tmp_path / "a")
    clients = attacked.records[-1]["clients"]
    attackers = [client["client"] for client in clients if client["attacker"]]
    assert len(attackers) == 2
    assert chart_data(attacked)["clients"][0]["attackers"] == attackers
