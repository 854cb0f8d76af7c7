"""Studies with a fusion: their figures by hand, their rounds, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from folders import assert_same_results
from networks import answers
from playground import FAST, StopAfter, assert_same, tiny_dataset
from sklearn.metrics import r2_score
from torch import nn

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import ignore
from tacit.core.seeds import numpy_generator
from tacit.federated.fusion.average import Average
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Fused, Fusion
from tacit.report.results import Results
from tacit.rounds import memories
from tacit.simulation.fusion_baselines import NetworkTester
from tacit.simulation.kinds.fusion import FusionSimulation
from tacit.study.checks import cautions
from tacit.study.kinds.fusion import FusionRun
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.run import Run
from tacit.study.study import Study
from tacit.study.study_data import try_out
from tacit.training.metrics import METRICS
from tacit.training.yardstick import Yardstick

FUSED: dict[str, Any] = {
    **FAST,
    "model": {"name": "mlp", "hidden": [6]},
    "fusion": "pfnm",
    "initial": "different",
    "rounds": 1,
    "local_epochs": 5,
}
METHODS: list[Any] = [
    "pfnm",
    {"name": "pfnm", "class_weights": True, "gamma": 5.0},
    {"name": "pfnm", "reference": True},
    "spahm",
    "average",
]


def networks_of(results: Results, run: str) -> list[Dense]:
    clients = range(results.runs[run].clients)
    return [Dense.of(results.model(run, client=client).state_dict()) for client in clients]


def by_hand(
    results: Results, run: str, round: int = 1, networks: Any = None, **options: Any
) -> Fused:
    """The fusion of clients' networks, with the draws that the engine has."""
    spec = results.runs[run]
    assert isinstance(spec, FusionRun)
    counts = np.array(results.portraits[0].train, float)
    draw = numpy_generator(spec.seed, "fusion", round)
    if networks is None:
        networks = networks_of(results, run)
    return spec.fusion.fuse(networks, draw, counts=counts, **options)


def test_data(results: Results, run: str) -> tuple[Any, Any]:
    data = results.runs[run].dataset.load()
    return data.test_x, data.test_y


test_data.__test__ = False  # type: ignore[attr-defined]


def accuracy(output: Any, y: Any) -> float:
    return float((np.asarray(output).argmax(1) == y.numpy()).mean())


def shares(output: Any) -> Any:
    return np.exp(output) / np.exp(output).sum(1, keepdims=True)


def history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def records_of(folder: Path, run: str) -> list[dict[str, Any]]:
    return [record for record in history(folder) if record["run"] == run]


def arrays_of(network: Dense) -> list[Any]:
    return [*network.weights, *network.biases]


def assert_state(state: Any, network: Dense, *, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """A saved model has the weights of a network, in single precision."""
    pairs = zip(arrays_of(Dense.of(state)), arrays_of(network), strict=True)
    for saved, expected in pairs:
        np.testing.assert_allclose(saved, expected, rtol=rtol, atol=atol)


def as_lists(assignment: Any) -> list[list[list[int]]]:
    return [[neurons.tolist() for neurons in layer] for layer in assignment]


# One round, by hand


@pytest.fixture(scope="module", params=["iris", "two layers"])
def one_shot(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Results:
    hidden = [6] if request.param == "iris" else [5, 4]
    settings = {
        **FUSED,
        "model": {"name": "mlp", "hidden": hidden},
        "fusion": METHODS,
        "split": "label_dirichlet",
    }
    return tacit.run(Study("shot", **settings), tmp_path_factory.mktemp("shot") / "a")


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_the_fused_network_is_that_of_the_clients_networks(one_shot: Results, number: int) -> None:
    run = list(one_shot.labels)[number]
    fused = by_hand(one_shot, run)
    module = one_shot.model(run)
    assert_state(module.state_dict(), fused.network)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    widths = [layer.out_features for layer in layers[:-1]]
    assert widths == list(fused.network.widths)
    (record,) = records_of(one_shot.folder, run)
    assert record["fusion"]["widths"] == widths
    assert record["width"] == sum(widths)
    assert record["fusion"]["assignment"] == as_lists(fused.assignment)
    local = [network.widths for network in networks_of(one_shot, run)]
    by_layer = [list(layer) for layer in zip(*local, strict=True)]
    assert record["fusion"]["local_widths"] == by_layer
    assert record["local_width"] == sum(map(sum, local))


def weighted_mean(networks: list[Dense], counts: Any) -> Dense:
    """The networks' average, each client counting by its samples."""
    n = counts.sum(1) / counts.sum()
    weights = []
    biases = []
    for layer in range(len(networks[0].weights)):
        stacked_weights = np.stack([network.weights[layer] for network in networks])
        stacked_biases = np.stack([network.biases[layer] for network in networks])
        weights.append(np.tensordot(n, stacked_weights, 1))
        biases.append(np.tensordot(n, stacked_biases, 1))
    return Dense(tuple(weights), tuple(biases))


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_its_figures_and_those_of_the_others_are_those_by_hand(
    one_shot: Results, number: int
) -> None:
    run = list(one_shot.labels)[number]
    x, y = test_data(one_shot, run)
    inputs = x.double().numpy()
    (record,) = records_of(one_shot.folder, run)
    networks = networks_of(one_shot, run)
    output = torch.tensor(answers(by_hand(one_shot, run).network, inputs))
    loss = nn.functional.cross_entropy(output, y).item()
    assert record["loss"] == pytest.approx(loss, rel=1e-5)
    assert record["accuracy"] == pytest.approx(accuracy(output, y))
    client_answers = [answers(network, inputs) for network in networks]
    alone = [accuracy(answer, y) for answer in client_answers]
    assert record["fusion"]["alone"] == pytest.approx(alone)
    assert record["alone_accuracy"] == pytest.approx(np.mean(alone))
    mean = weighted_mean(networks, np.array(one_shot.portraits[0].train, float))
    assert record["average_accuracy"] == pytest.approx(accuracy(answers(mean, inputs), y))
    ensemble = np.mean([shares(answer) for answer in client_answers], axis=0)
    assert record["ensemble_accuracy"] == pytest.approx(accuracy(ensemble, y))


def a_constant(*values: float) -> nn.Module:
    """A network that says the same of everything."""
    module = nn.Linear(2, len(values))
    nn.init.zeros_(module.weight)
    module.bias = nn.Parameter(torch.tensor(values))
    return module


def test_an_ensemble_averages_probabilities_and_of_numbers_the_numbers() -> None:
    """One that is very sure is outvoted by two that are fairly sure: 1/3 against 2/3 of 0.88."""
    networks = [a_constant(100.0, 0.0), a_constant(0.0, 2.0), a_constant(0.0, 2.0)]
    tester = NetworkTester(
        Yardstick(METRICS["accuracy"], 2), torch.zeros(4, 2), torch.tensor([1, 1, 1, 0])
    )
    figures = tester.compare(networks[0], networks, networks[1])
    assert figures["accuracy"] == 0.25
    assert figures["ensemble_accuracy"] == 0.75
    assert figures["average_accuracy"] == 0.75
    assert figures["alone"] == [0.25, 0.75, 0.75]
    assert figures["alone_accuracy"] == pytest.approx(1.75 / 3)
    networks = [a_constant(1.0), a_constant(5.0)]
    yardstick = Yardstick(METRICS["r2"], variance=4.0, unit=3.0)
    tester = NetworkTester(yardstick, torch.zeros(4, 2), torch.full((4,), 2.0))
    figures = tester.compare(networks[0], networks, None)
    assert (figures["loss"], figures["r2"], figures["rmse"]) == (1.0, 0.75, 3.0)
    assert figures["ensemble_r2"] == 0.75
    assert figures["average_r2"] is None
    assert figures["alone"] == [0.75, 1 - 9 / 4]


def test_all_methods_get_the_same_networks(one_shot: Results) -> None:
    runs = list(one_shot.labels)
    expected = networks_of(one_shot, runs[0])
    for run in runs[1:]:
        networks = networks_of(one_shot, run)
        for network, first_network in zip(networks, expected, strict=True):
            for array, first_array in zip(network.weights, first_network.weights, strict=True):
                assert np.array_equal(array, first_array)
    table = one_shot.table()
    assert {"local networks", "naive average", "ensemble"} <= set(table.index)
    average = next(run for run in runs if isinstance(one_shot.runs[run].fusion, Average))
    named = table.loc[one_shot.names[average]].item()
    assert named == pytest.approx(table.loc["naive average"].item())


@pytest.mark.parametrize("number", [0, 3])
def test_local_tests_are_those_of_the_fused_network_and_of_the_clients_own(
    one_shot: Results, number: int
) -> None:
    run = list(one_shot.labels)[number]
    (record,) = records_of(one_shot.folder, run)
    data = one_shot.runs[run].dataset.load()
    partition, _ = try_out(one_shot.runs[run], data)
    networks = networks_of(one_shot, run)
    fused = by_hand(one_shot, run).network
    for client, network in zip(record["clients"], networks, strict=True):
        index = partition.test[client["client"]]
        assert client["samples"] == len(partition.train[client["client"]])
        x = data.x[index].double().numpy()
        y = data.y[index]
        output = torch.tensor(answers(fused, x))
        loss = nn.functional.cross_entropy(output, y).item()
        assert client["test_loss"] == pytest.approx(loss, rel=1e-5)
        assert client["test_accuracy"] == pytest.approx(accuracy(output, y))
        assert client["alone_accuracy"] == pytest.approx(accuracy(answers(network, x), y))
    tests = [client["test_accuracy"] for client in record["clients"]]
    assert record["local_accuracy"] == pytest.approx(np.mean(tests))
    assert record["worst"] == min(tests)


def test_clients_that_start_alike_train_as_those_without_fusion(tmp_path: Path) -> None:
    """The networks that are fused are the ones that local training makes."""
    alike = {**FUSED, "initial": "same"}
    fused = tacit.run(alike, tmp_path / "fused", on_event=ignore)
    local = tacit.run({**alike, "fusion": None, "algorithm": "local"}, tmp_path / "local")
    (fused_run,) = fused.labels
    (local_run,) = local.labels
    for client in range(3):
        fused_model = fused.model(fused_run, client=client).state_dict()
        local_model = local.model(local_run, client=client).state_dict()
        torch.testing.assert_close(fused_model, local_model, rtol=0, atol=0)


# Several rounds


def test_clients_go_on_from_their_own_neurons_of_the_fused_network(tmp_path: Path) -> None:
    """With no step to speak of, what they have after the second round is what they were given."""
    still = {
        **FUSED,
        "optimiser": {"name": "sgd", "lr": 1e-30},
        "fusion": [{"name": "pfnm", "gamma": 3.0}, "spahm"],
    }
    first = tacit.run({**still, "rounds": 1}, tmp_path / "one")
    second = tacit.run({**still, "rounds": 2}, tmp_path / "two")
    for run in first.labels:
        fused = by_hand(first, run)
        (width,) = fused.network.widths
        assert width > 6  # not all neurons are matched, so that no client has all of them
        networks = networks_of(second, run)
        for client, network in enumerate(networks):
            like = second.model(run, client=client).state_dict()
            assert_state(network.state(like), fused.part(client))
        again = by_hand(second, run, 2, networks, start=fused.assignment)
        assert_state(second.model(run).state_dict(), again.network, rtol=1e-5, atol=1e-6)
        records = records_of(second.folder, run)
        assert records[0]["fusion"]["widths"] == [width]
        assert records[1]["fusion"]["assignment"] == as_lists(again.assignment)


ROUNDS: dict[str, Any] = {
    **FUSED,
    "rounds": 4,
    "local_epochs": 1,
    "fusion": ["pfnm", "spahm"],
    "widths": {"grid": [None, [7, 4, 4], [4, 7, 7]]},
}


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unstopped") / "a"
    tacit.run(ROUNDS, folder)
    return folder


@pytest.mark.parametrize("after", [1, 6, 15, 23])
def test_a_stopped_study_resumes_to_the_same_bytes(
    unstopped: Path, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", on_event=StopAfter(after))
    tacit.resume(tmp_path / "a")
    assert_same(tmp_path / "a", unstopped)


def test_workers_give_the_same_bytes(unstopped: Path, tmp_path: Path) -> None:
    tacit.run(ROUNDS, tmp_path / "a", workers=2)
    assert_same_results(tmp_path / "a", unstopped)


def test_a_study_stopped_here_goes_on_among_workers(
    unstopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", workers=1, on_event=StopAfter(9))
    tacit.resume(tmp_path / "a", workers=2)
    assert_same(tmp_path / "a", unstopped)


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("filed", [False, True])
def test_a_run_that_was_played_beside_others_goes_on_alone(
    tmp_path: Path, number: int, filed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where runs share a block, and on resume have other neighbours."""
    if filed:
        monkeypatch.setattr(memories, "IN_MEMORY", 0)
    folder = tmp_path / "memories" if filed else None
    study = Study(**{**ROUNDS, "fusion": "pfnm"})
    runs = [(f"run{k}", run) for k, run in enumerate(study.runs()[1:])]
    data = runs[0][1].dataset.load()
    stopped = FusionSimulation(runs, data, folder=folder)
    list(stopped.play_round())
    unstopped = FusionSimulation(runs, data)
    list(unstopped.play_round())
    alone = FusionSimulation([runs[number]], data, folder=folder)
    alone.states[0].restore(stopped.saved()[number])
    while unstopped.going:
        expected = [timeless(record) for record, _ in unstopped.play_round()]
        ((record, _),) = alone.play_round()
        assert timeless(record) == expected[number]


def test_networks_in_files_give_the_same_bytes(
    unstopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "IN_MEMORY", 0)
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", on_event=StopAfter(11))
    assert list((tmp_path / "a" / "memories").iterdir())
    tacit.resume(tmp_path / "a")
    assert_same(tmp_path / "a", unstopped)
    assert not (tmp_path / "a" / "memories").exists()


def test_the_same_study_gives_the_same_bytes_in_one_batch_or_alone(
    unstopped: Path, tmp_path: Path
) -> None:
    runs = Results(unstopped).runs
    for name in list(runs)[1::2]:
        run = runs[name]
        assert isinstance(run, FusionRun)
        alone = {**ROUNDS, "fusion": run.fusion.name, "widths": run.widths}
        tacit.run(alone, tmp_path / name)
        records = [{**record, "run": name} for record in history(tmp_path / name)]
        assert records == records_of(unstopped, name)


# Widths, regression, divergence


def test_clients_of_different_widths_are_fused(unstopped: Path) -> None:
    results = Results(unstopped)
    for name, run in results.runs.items():
        widths = [network.widths[0] for network in networks_of(results, name)]
        assert widths == list(run.widths or (6, 6, 6))
        sizes = [4 * w + w + 3 * w + 3 for w in widths]
        for record in records_of(unstopped, name):
            assert record["fusion"]["local_widths"] == [widths]
            assert max(widths) <= record["width"] <= sum(widths)
            assert (record["average_accuracy"] is None) == (run.widths is not None)
            assert record["bytes_up"] == 4 * sum(sizes)
            assert record["bytes_down"] == (4 * sum(sizes) if record["round"] > 1 else 0)


def test_different_widths_by_hand(tmp_path: Path) -> None:
    model = {"name": "mlp", "hidden": [6, 6]}
    results = tacit.run({**FUSED, "widths": [9, 4, 6], "model": model}, tmp_path / "a")
    (run,) = results.labels
    assert [network.widths for network in networks_of(results, run)] == [(9, 9), (4, 4), (6, 6)]
    assert_state(results.model(run).state_dict(), by_hand(results, run).network)
    x, y = test_data(results, run)
    (record,) = history(tmp_path / "a")
    with torch.no_grad():
        assert accuracy(results.model(run)(x), y) == pytest.approx(record["accuracy"])


def test_a_regression_is_fused_by_its_numbers(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "dataset": "diabetes",
        "fusion": ["pfnm", "spahm"],
        "optimiser": {"name": "sgd", "lr": 0.05},
    }
    results = tacit.run(study, tmp_path / "a")
    for name, record in zip(results.labels, history(tmp_path / "a"), strict=True):
        x, y = test_data(results, name)
        inputs = x.double().numpy()
        networks = networks_of(results, name)
        run = results.runs[name]
        assert isinstance(run, FusionRun)
        fused = run.fusion.fuse(networks, numpy_generator(0, "fusion", 1))
        assert_state(results.model(name).state_dict(), fused.network)
        answer = answers(fused.network, inputs)[:, 0]
        loss = float(((answer - y.numpy()) ** 2).mean())
        assert record["r2"] == pytest.approx(r2_score(y, answer), rel=1e-4)
        assert record["loss"] == pytest.approx(loss, rel=1e-5)
        client_answers = [answers(network, inputs)[:, 0] for network in networks]
        ensemble = np.mean(client_answers, axis=0)
        alone = np.mean([r2_score(y, client_answer) for client_answer in client_answers])
        assert record["ensemble_r2"] == pytest.approx(r2_score(y, ensemble), rel=1e-4)
        assert record["alone_r2"] == pytest.approx(alone, rel=1e-4)


def test_class_weights_are_refused_where_there_are_no_classes(tmp_path: Path) -> None:
    study = {**FUSED, "dataset": "diabetes", "fusion": {"name": "pfnm", "class_weights": True}}
    with pytest.raises(StudyError, match="class_weights needs classes"):
        tacit.run(study, tmp_path / "a")


def test_a_run_that_diverges_is_recorded_and_harms_no_other(tmp_path: Path) -> None:
    rates = [{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 1e30}]
    results = tacit.run({**FUSED, "rounds": 3, "optimiser": rates}, tmp_path / "both")
    alone = tacit.run({**FUSED, "rounds": 3}, tmp_path / "alone")
    assert results.summary()["status"].tolist() == ["finished", "diverged"]
    assert alone.summary()["status"].tolist() == ["finished"]
    sound, diverged = results.labels
    expected = [{**record, "run": sound} for record in history(tmp_path / "alone")]
    assert records_of(tmp_path / "both", sound) == expected
    (record,) = records_of(tmp_path / "both", diverged)
    assert record["status"] == "diverged"
    assert record["loss"] is record["accuracy"] is None
    assert (tmp_path / "both" / "report.html").exists()
    assert pd.isna(results.table().loc[results.names[diverged]]).all()
    message = "diverged before there was a fused network; use a smaller learning rate"
    with pytest.raises(StudyError, match=message):
        results.model(diverged)


@pytest.mark.parametrize("rate", [30.0, 1e5])
def test_however_large_the_steps_a_run_ends_in_good_order(tmp_path: Path, rate: float) -> None:
    settings = {
        "rounds": 6,
        "optimiser": {"name": "sgd", "lr": rate},
        "model": {"name": "mlp", "hidden": [4, 4]},
    }
    tacit.run({**FUSED, **settings}, tmp_path / "a")
    *records, last = history(tmp_path / "a")
    assert all(record["status"] == "running" for record in records)
    assert (last["loss"] is None) == (last["status"] == "diverged")


def test_a_run_that_diverges_keeps_its_last_sound_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tacit.run(FUSED, tmp_path / "once")
    sound_compare = NetworkTester.compare
    factors = iter([1.0, float("nan")])

    def broken(tester: NetworkTester, *networks: Any) -> dict[str, Any]:
        figures = sound_compare(tester, *networks)
        return figures | {"loss": figures["loss"] * next(factors)}

    monkeypatch.setattr(NetworkTester, "compare", broken)
    results = tacit.run({**FUSED, "rounds": 5}, tmp_path / "a")
    statuses = [record["status"] for record in history(tmp_path / "a")]
    assert statuses == ["running", "diverged"]
    (run,) = results.labels
    (first,) = once.labels
    last_sound = once.model(first).state_dict()
    torch.testing.assert_close(results.model(run).state_dict(), last_sound, rtol=0, atol=0)


def test_patience_stops_a_fusion(tmp_path: Path) -> None:
    still = {"optimiser": {"name": "sgd", "lr": 1e-9}, "local_epochs": 1}  # nothing gets better
    tacit.run({**FUSED, **still, "rounds": 30, "patience": 2}, tmp_path / "a")
    records = history(tmp_path / "a")
    accuracies = [record["accuracy"] for record in records]
    best = accuracies.index(max(accuracies))
    assert records[-1]["status"] == "patience"
    assert len(records) == best + 3
    assert "assignment" in records[-1]["fusion"]


def test_runs_with_other_noise_and_widths_beside_it_change_nothing() -> None:
    """Every kind of network has its own samples, and a run's indices differ between them."""
    data = Study(**FUSED).runs()[0].dataset.load()
    kinds = [
        {"widths": [6, 6, 6], "split": {"name": "feature_noise", "sigma": 0.5}},
        {"widths": [7, 6, 7], "split": {"name": "feature_noise", "sigma": 5.0}},
        {"widths": [8, 8, 8], "split": "iid"},
    ]
    runs = [(str(k), Study(**{**FUSED, **kind}).runs()[0]) for k, kind in enumerate(kinds)]
    for order in (runs, runs[::-1]):
        together = FusionSimulation(order, data).play_round()
        records = {record["run"]: record for record, _ in together}
        for id, run in runs:
            ((alone, _),) = FusionSimulation([(id, run)], data).play_round()
            assert timeless(records[id]) == timeless(alone)


def test_the_average_of_a_regression_counts_clients_by_their_samples(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "dataset": "diabetes",
        "fusion": "average",
        "split": {"name": "quantity_skew", "beta": 0.3},
    }
    results = tacit.run(study, tmp_path / "a")
    (run,) = results.labels
    (record,) = history(tmp_path / "a")
    sizes = np.array([[client["samples"]] for client in record["clients"]], float)
    assert sizes.max() > 3 * sizes.min()
    networks = networks_of(results, run)
    average = Average().fuse(networks, np.random.default_rng(0), counts=sizes).network
    x, y = test_data(results, run)
    score = r2_score(y, answers(average, x.double().numpy())[:, 0])
    summary = results.summary()
    assert summary["r2"][0] == pytest.approx(score, abs=1e-5)
    assert summary["average_r2"][0] == summary["r2"][0]


def test_baselines_are_told_apart_by_what_else_varies(tmp_path: Path) -> None:
    rates = [{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 1e30}]
    varied = {"fusion": ["pfnm", "spahm"], "optimiser": rates, "seed": [0, 1]}
    results = tacit.run({**FUSED, **varied}, tmp_path / "a")
    table = results.table()["iid"]
    assert len(table) == 4 + 3 * 2
    assert table["local networks, optimiser=sgd(lr=0.1)"] > 0.3
    assert np.isnan(table["local networks, optimiser=sgd(lr=1e+30)"])
    assert np.isnan(table["pfnm, optimiser=sgd(lr=1e+30)"])
    comparison = results.comparison()
    accuracies = comparison[comparison["metric"] == "accuracy"]
    assert set(accuracies["method"]) == set(table.index)


def test_seconds_of_matching_add_up(tmp_path: Path) -> None:
    results = tacit.run({**FUSED, "rounds": 3}, tmp_path / "a")
    total = results.frame()["matching_seconds"].sum()
    assert results.summary()["matching_seconds"][0] == pytest.approx(total)


def test_targets_stop_a_fusion(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "rounds": 30,
        "target_accuracy": 0.3,
        "fusion": {"name": "pfnm", "variance": 0.01},
    }
    results = tacit.run(study, tmp_path / "a")
    *records, last = history(tmp_path / "a")
    assert last["accuracy"] >= 0.3
    assert last["round"] < 30
    assert all(record["accuracy"] < 0.3 for record in records)
    (run,) = results.labels
    x, y = test_data(results, run)
    with torch.no_grad():
        assert accuracy(results.model(run)(x), y) == pytest.approx(last["accuracy"])
    assert "assignment" in last["fusion"]


# What can be asked for


def test_a_grid_has_one_run_of_a_fusion_whatever_the_algorithm() -> None:
    varied = {"algorithm": ["fedavg", "fedprox"], "fusion": [None, "pfnm"]}
    runs = Study(**{**FUSED, **varied, "initial": "same"}).runs()
    assert len(runs) == 3
    horizontal = [run for run in runs if isinstance(run, HorizontalRun)]
    assert [run.algorithm.name for run in horizontal] == ["fedavg", "fedprox"]
    fusions = [run for run in runs if isinstance(run, FusionRun)]
    assert [run.algorithm.name for run in fusions] == ["local"]


def test_fusions_stand_beside_algorithms_and_a_reference(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "algorithm": ["fedavg", "fedprox"],
        "fusion": [None, "pfnm"],
        "centralised": True,
        "rounds": 2,
    }
    message = "fedavg, fedprox averages networks that start from different weights"
    with pytest.warns(UserWarning, match=message):
        results = tacit.run(study, tmp_path / "a")
    assert len(results.labels) == 4
    assert (results.summary()["status"] == "finished").all()
    assert list(results.table().index) == [
        "fedavg",
        "pfnm",
        "pfnm: local networks",
        "pfnm: naive average",
        "pfnm: ensemble",
        "fedprox",
        "centralised",
    ]


REFUSED: dict[str, Any] = {
    "combiner": "median",
    "selection": {"name": "fraction", "c": 0.5},
    "behaviour": {"name": "stragglers"},
    "dropout": 0.1,
    "missing": "zero",
    "attackers": {"count": 1, "kind": "sign_flip"},
    "wire": ["top_k"],
    "radius": 1.0,
    "fine_tuning": 1,
    "pretraining": 1,
    "distillation": 1,
}


def test_all_refused_settings_are_tried() -> None:
    shared = {item.name for item in fields(Run)}
    horizontal = {item.name for item in fields(HorizontalRun)}
    assert REFUSED.keys() == horizontal - shared - FusionRun.replaces


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_a_fusion_has_no_use_for_is_refused(name: str) -> None:
    settings = {**FUSED, name: REFUSED[name], "initial": "same", "server_samples": 20}
    with pytest.raises(StudyError, match=f"pfnm fuses whole networks .* leave out {name}"):
        Study(**settings)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"fusion": None, "widths": [3, 4, 5], "initial": "same"},
            "widths: only a fusion .* such as fusion: pfnm",
        ),
        ({"widths": [3, 4, 5], "model": "linear"}, "leave them out with model: linear"),
        (
            {"widths": [3, 4]},
            r"widths: expected 3 numbers of 1 or more, one for each client, got \[3, 4\]",
        ),
        ({"widths": [3, 4, 0]}, "widths: expected 3 numbers of 1 or more, one for each client"),
        ({"fusion": {"name": "pfnm", "variance": 0}}, r"pfnm\.variance: expected a number above 0"),
        ({"fusion": "pfmn"}, "pfnm"),
    ],
    ids=str,
)
def test_studies_that_make_no_sense_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(StudyError, match=match):
        Study(**{**FUSED, **settings})


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"model": "linear"}, "pfnm cannot fuse linear: .* hidden layer"),
        (
            {"model": "cnn", "dataset": {"name": "function", "path": "own_code:make_pictures"}},
            "cannot fuse cnn: .*only in dense layers",
        ),
        (
            {"fusion": "average", "widths": [3, 4, 5]},
            "average needs networks of the same widths; leave out widths",
        ),
    ],
    ids=["linear", "cnn", "average"],
)
def test_networks_that_cannot_be_fused_are_refused(
    tmp_path: Path, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(StudyError, match=match):
        tacit.run({**FUSED, **settings}, tmp_path / "a")


def test_frozen_layers_are_refused() -> None:
    run = Study(**FUSED).runs()[0]
    module = run.model.make((5,), 3)
    module[1].weight.requires_grad_(False)  # type: ignore[index,union-attr]
    message = r"fuses what clients have trained, and 1\.weight is frozen"
    with pytest.raises(StudyError, match=message):
        run.check_data(module, tiny_dataset(), [1, 1, 1])


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_client_without_samples_is_refused(empty: int) -> None:
    run = Study(**FUSED).runs()[0]
    module = run.model.make((5,), 3)
    sizes = [5, 5, 5]
    sizes[empty] = 0
    message = f"client {empty} has no sample to train a network with; use fewer clients"
    with pytest.raises(StudyError, match=message):
        run.check_data(module, tiny_dataset(), sizes)
    run.alone(run.model).check_data(module, tiny_dataset(), sizes)
    run.check_data(module, tiny_dataset(), [1, 1, 1])


def test_a_common_start_is_cautioned_about() -> None:
    alike = Study(**{**FUSED, "initial": "same"}).runs()
    different = Study(**{**FUSED, "initial": "different"}).runs()
    assert any("set initial: different" in text for text in cautions(alike))
    assert not any("set initial: different" in text for text in cautions(different))


def test_every_fusion_has_a_study(tmp_path: Path) -> None:
    """Whatever is registered can be asked for by name, and leaves a model."""
    names = list(Fusion.known())
    assert {"pfnm", "spahm", "average"} <= set(names)
    results = tacit.run({**FUSED, "fusion": names}, tmp_path / "a")
    assert (results.summary()["status"] == "finished").all()
