"""Methods that differ from the second local step on, where every client takes only one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from playground import FAST

import tacit
from tacit.core.events import ignore
from tacit.federated.algorithm import Algorithm
from tacit.study.study import Study
from tacit.study.study_data import load_data

ONE_STEP = {**FAST, "batch_size": None, "split": {"name": "quantity_skew", "beta": 1.0}}
ALIKE = ["fedavg", "fednova", "fedprox", "fedprox_adaptive", "fedsgd", "scaffold"]


def cautions_of(**settings: Any) -> list[str]:
    study = Study(**{**ONE_STEP, **settings})
    texts = load_data(study, None, ignore).cautions(study.runs())
    return [text for text in texts if "one local step" in text]


def test_the_methods_that_say_so_are_these() -> None:
    answers = {name: cls.fedavg_in_one_step for name, cls in Algorithm.known().items()}
    assert [name for name, answer in answers.items() if answer != "never"] == ALIKE


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("name", ALIKE[1:])
def test_with_one_step_they_give_the_model_of_fedavg(
    tmp_path: Path, name: str, weights: str
) -> None:
    algorithms = [{"name": "fedavg", "weights": weights}, {"name": name, "weights": weights}]
    study = {**ONE_STEP, "rounds": 6, "algorithm": algorithms, "seed": [1]}
    study["schedule"] = ["constant", {"name": "step", "every": 2}]
    results = tacit.run(study, tmp_path / "a", workers=1, on_event=[])
    runs = list(results.runs)
    half = len(runs) // 2
    for fedavg, other in zip(runs[:half], runs[half:], strict=True):
        states = [results.model(run).state_dict() for run in (fedavg, other)]
        torch.testing.assert_close(states[0], states[1], rtol=1e-4, atol=1e-6)


def test_a_study_that_compares_them_is_told() -> None:
    algorithms = ["fedavg", "fedsgd", "fedadam", {"name": "fedprox", "mu": [0.1, 1]}]
    (text,) = cautions_of(algorithm=algorithms, optimiser={"name": "sgd", "lr": 0.1})
    assert "fedavg, fedsgd, fedprox(mu=0.1) and fedprox(mu=1) do the same" in text
    assert "smaller batch_size or more local_epochs" in text


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 8},
        {"local_epochs": 2},
        {"algorithm": ["fedavg", "fedadam"]},
        {"algorithm": "fedavg", "rounds": [1, 2]},
        {"initial": "different"},
        {"algorithm": ["fedavg", {"name": "fednova", "weights": "uniform"}]},
    ],
    ids=str,
)
def test_a_study_whose_methods_differ_is_not(settings: dict[str, Any]) -> None:
    chosen = {"algorithm": ["fedavg", "fedprox"], **settings}
    assert cautions_of(**chosen) == []


def test_a_batch_that_holds_all_of_a_clients_samples_is_one_step() -> None:
    assert cautions_of(algorithm=["fedavg", "fedprox"], batch_size=1000)


@pytest.mark.parametrize(
    ("settings", "is_alike"),
    [
        ({}, True),
        ({"selection": {"name": "fraction", "c": 0.5}}, False),
        ({"dropout": 0.5}, False),
        ({"combiner": "median"}, False),
        ({"algorithm": ["fedavg", {"name": "scaffold", "server_lr": 0.5}]}, False),
    ],
    ids=str,
)
def test_control_variates_cancel_only_where_all_are_averaged(
    settings: dict[str, Any], is_alike: bool
) -> None:
    algorithms = ["scaffold", {"name": "fedavg", "weights": "uniform"}]
    assert bool(cautions_of(**{"algorithm": algorithms, **settings})) == is_alike


def test_the_report_knows_of_it(tmp_path: Path) -> None:
    study = {**ONE_STEP, "algorithm": ["fedavg", "fedprox"]}
    with pytest.warns(UserWarning, match="fedavg and fedprox do the same"):
        results = tacit.run(study, tmp_path / "a", workers=1)
    assert "do the same" in results.report.read_text()
