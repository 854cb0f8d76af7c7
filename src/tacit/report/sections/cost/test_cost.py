"""Costs are those of the history."""

from __future__ import annotations

import pytest

import tacit
from tacit.report.curves import chart_data
from tacit.report.sections.cost.section import method_costs


def test_costs_are_means_of_a_methods_runs(results: tacit.Results) -> None:
    (costs,) = (row for row in method_costs(results) if row["method"] == "fedavg")
    summary = results.summary()
    runs = summary[summary["run"].map(results.names) == "fedavg"]
    assert float(costs["up"]) == pytest.approx(runs["bytes_up"].mean() / 1e6, rel=1e-2)
    assert float(costs["per_mb"]) == pytest.approx(runs["accuracy_per_mb"].mean(), rel=1e-2)
    assert float(costs["each"]) == pytest.approx(1000 * runs["seconds"].mean() / 4, rel=1e-2)
    assert costs["rounds"] == "4"


def test_curves_count_what_was_sent_so_far(results: tacit.Results) -> None:
    curve = chart_data(results)["curves"][0]
    rounds = results.frame().query("run == @curve['run']")
    assert curve["mb"] == pytest.approx((rounds["bytes_up"].cumsum() / 1e6).tolist(), rel=1e-4)
    assert curve["time"] == pytest.approx(rounds["seconds"].cumsum().tolist(), rel=1e-3)
    summary = results.summary().set_index("run").loc[curve["run"]]
    assert summary["bytes_up"] == rounds["bytes_up"].sum()
