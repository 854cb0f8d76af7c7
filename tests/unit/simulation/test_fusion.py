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
from tacit.simulation.metrics import Score
from tacit.study.checks import cautions
from tacit.study.kinds.fusion import FusionRun
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.run import Run
from tacit.study.study import Study
from tacit.study.study_data import try_out

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
    results: Results, run: str, round: int = 1, networks: Any = None, **given: Any
) -> Fused:
    """The fusion of clients' networks, with the draws that the engine has."""
    spec = results.runs[run]
    assert isinstance(spec, FusionRun)
    counts = np.array(results.portraits[0].train, float)
    draw = numpy_generator(spec.seed, "fusion", round)
    return spec.fusion.fuse(networks or networks_of(results, run), draw, counts=counts, **given)


def test_data(results: Results, run: str) -> tuple[Any, Any]:
    data = results.runs[run].dataset.load()
    return data.test_x, data.test_y


test_data.__test__ = False  # type: ignore[attr-defined]


def accuracy(output: Any, y: Any) -> float:
    return float((np.asarray(output).argmax(1) == y.numpy()).mean())


def shares(output: Any) -> Any:
    return np.exp(output) / np.exp(output).sum(1, keepdims=True)


def history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def assert_state(state: Any, network: Dense, **tolerance: float) -> None:
    """A saved model has the weights of a network, in single precision."""
    found = Dense.of(state)
    for mine, theirs in zip(
        (*found.weights, *found.biases), (*network.weights, *network.biases), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, **({"rtol": 1e-6, "atol": 1e-7} | tolerance))


# One round, by hand


@pytest.fixture(scope="module", params=["iris", "two layers"])
def one_shot(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Results:
    model = {"name": "mlp", "hidden": [6] if request.param == "iris" else [5, 4]}
    study = Study(
        "shot", **{**FUSED, "model": model, "fusion": METHODS, "split": "label_dirichlet"}
    )
    return tacit.run(study, tmp_path_factory.mktemp("shot") / "a")


@pytest.mark.parametrize("place", range(len(METHODS)))
def test_the_fused_network_is_that_of_the_clients_networks(one_shot: Results, place: int) -> None:
    run = list(one_shot.labels)[place]
    fused, module = by_hand(one_shot, run), one_shot.model(run)
    assert_state(module.state_dict(), fused.network)
    widths = [part.out_features for part in module.modules() if isinstance(part, nn.Linear)][:-1]
    assert widths == list(fused.network.widths)
    record = next(line for line in history(one_shot.folder) if line["run"] == run)
    assert record["fusion"]["widths"] == widths
    assert record["width"] == sum(widths)
    assert record["fusion"]["assignment"] == [
        [own.tolist() for own in layer] for layer in fused.assignment
    ]
    local = [list(network.widths) for network in networks_of(one_shot, run)]
    assert record["fusion"]["local_widths"] == [list(layer) for layer in zip(*local, strict=True)]
    assert record["local_width"] == sum(map(sum, local))


@pytest.mark.parametrize("place", range(len(METHODS)))
def test_its_figures_and_those_of_the_others_are_those_by_hand(
    one_shot: Results, place: int
) -> None:
    run = list(one_shot.labels)[place]
    x, y = test_data(one_shot, run)
    record = next(line for line in history(one_shot.folder) if line["run"] == run)
    networks, fused = networks_of(one_shot, run), by_hand(one_shot, run)
    output = torch.tensor(answers(fused.network, x.double().numpy()))
    assert record["loss"] == pytest.approx(nn.functional.cross_entropy(output, y).item(), rel=1e-5)
    assert record["accuracy"] == pytest.approx(accuracy(output, y))
    each = [answers(network, x.double().numpy()) for network in networks]
    alone = [accuracy(one, y) for one in each]
    assert record["fusion"]["alone"] == pytest.approx(alone)
    assert record["alone_accuracy"] == pytest.approx(np.mean(alone))
    counts = np.array(one_shot.portraits[0].train, float)
    n = counts.sum(1) / counts.sum()
    weights, biases = (
        tuple(np.tensordot(n, np.stack(layer), 1) for layer in zip(*parts, strict=True))
        for parts in ([one.weights for one in networks], [one.biases for one in networks])
    )
    mean = Dense(weights, biases)
    assert record["average_accuracy"] == pytest.approx(
        accuracy(answers(mean, x.double().numpy()), y)
    )
    together = np.mean([shares(one) for one in each], axis=0)
    assert record["ensemble_accuracy"] == pytest.approx(accuracy(together, y))


def a_constant(*values: float) -> nn.Module:
    """A network that says the same of everything."""
    module = nn.Linear(2, len(values))
    nn.init.zeros_(module.weight)
    module.bias = nn.Parameter(torch.tensor(values))
    return module


def test_an_ensemble_averages_probabilities_and_of_numbers_the_numbers() -> None:
    """One that is very sure is outvoted by two that are fairly sure: 1/3 against 2/3 of 0.88."""
    own = [a_constant(100.0, 0.0), a_constant(0.0, 2.0), a_constant(0.0, 2.0)]
    found = NetworkTester(Score(), torch.zeros(4, 2), torch.tensor([1, 1, 1, 0])).compare(
        own[0], own, own[1]
    )
    assert (found["accuracy"], found["ensemble_accuracy"], found["average_accuracy"]) == (
        0.25,
        0.75,
        0.75,
    )
    assert found["alone"] == [0.25, 0.75, 0.75]
    assert found["alone_accuracy"] == pytest.approx(1.75 / 3)
    numbers = [a_constant(1.0), a_constant(5.0)]
    found = NetworkTester(Score("r2", 4.0, 3.0), torch.zeros(4, 2), torch.full((4,), 2.0)).compare(
        numbers[0], numbers, None
    )
    assert (found["loss"], found["r2"], found["rmse"]) == (1.0, 0.75, 3.0)
    assert (found["ensemble_r2"], found["average_r2"], found["alone"]) == (
        0.75,
        None,
        [0.75, 1 - 9 / 4],
    )


def test_all_methods_get_the_same_networks(one_shot: Results) -> None:
    runs = list(one_shot.labels)
    for run in runs[1:]:
        for mine, theirs in zip(
            networks_of(one_shot, runs[0]), networks_of(one_shot, run), strict=True
        ):
            assert all(
                np.array_equal(*pair) for pair in zip(mine.weights, theirs.weights, strict=True)
            )
    table = one_shot.table()
    assert {"local networks", "naive average", "ensemble"} <= set(table.index)
    average = next(run for run in runs if isinstance(one_shot.runs[run].fusion, Average))
    named = table.loc[one_shot.names[average]].item()
    assert named == pytest.approx(table.loc["naive average"].item())


@pytest.mark.parametrize("place", [0, 3])
def test_local_tests_are_those_of_the_fused_network_and_of_the_clients_own(
    one_shot: Results, place: int
) -> None:
    run = list(one_shot.labels)[place]
    record = next(line for line in history(one_shot.folder) if line["run"] == run)
    data = one_shot.runs[run].dataset.load()
    partition, _ = try_out(one_shot.runs[run], data)
    networks, fused = networks_of(one_shot, run), by_hand(one_shot, run).network
    for client, network in zip(record["clients"], networks, strict=True):
        index = partition.test[client["client"]]
        assert client["samples"] == len(partition.train[client["client"]])
        x, y = data.x[index].double().numpy(), data.y[index]
        output = torch.tensor(answers(fused, x))
        assert client["test_loss"] == pytest.approx(
            nn.functional.cross_entropy(output, y).item(), rel=1e-5
        )
        assert client["test_accuracy"] == pytest.approx(accuracy(output, y))
        assert client["alone_accuracy"] == pytest.approx(accuracy(answers(network, x), y))
    tests = [client["test_accuracy"] for client in record["clients"]]
    assert record["local_accuracy"] == pytest.approx(np.mean(tests))
    assert record["worst"] == min(tests)


def test_clients_that_start_alike_train_as_those_without_fusion(tmp_path: Path) -> None:
    """The networks that are fused are the ones that local training makes."""
    fused = tacit.run({**FUSED, "initial": "same"}, tmp_path / "fused", on_event=ignore)
    local = tacit.run(
        {**FUSED, "initial": "same", "fusion": None, "algorithm": "local"}, tmp_path / "local"
    )
    for client in range(3):
        mine, theirs = (
            one.model(next(iter(one.labels)), client=client).state_dict() for one in (fused, local)
        )
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


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
        assert fused.network.widths > (
            6,
        )  # not all are matched, so that a part is less than the whole
        networks = networks_of(second, run)
        for client, network in enumerate(networks):
            assert_state(
                network.state(second.model(run, client=client).state_dict()), fused.part(client)
            )
        again = by_hand(second, run, 2, networks, start=fused.assignment)
        assert_state(second.model(run).state_dict(), again.network, rtol=1e-5, atol=1e-6)
        records = [line for line in history(second.folder) if line["run"] == run]
        assert records[0]["fusion"]["widths"] == list(fused.network.widths)
        assert records[1]["fusion"]["assignment"] == [
            [own.tolist() for own in layer] for layer in again.assignment
        ]


ROUNDS: dict[str, Any] = {
    **FUSED,
    "rounds": 4,
    "local_epochs": 1,
    "fusion": ["pfnm", "spahm"],
    "widths": {"grid": [None, [7, 4, 4], [4, 7, 7]]},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "a"
    tacit.run(ROUNDS, folder)
    return folder


@pytest.mark.parametrize("after", [1, 6, 15, 23])
def test_a_stopped_study_resumes_to_the_same_bytes(
    whole: Path, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", on_event=StopAfter(after))
    tacit.resume(tmp_path / "a")
    assert_same(tmp_path / "a", whole)


def test_workers_give_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    tacit.run(ROUNDS, tmp_path / "a", workers=2)
    assert_same_results(tmp_path / "a", whole)


def test_a_study_stopped_here_goes_on_among_workers(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", workers=1, on_event=StopAfter(9))
    tacit.resume(tmp_path / "a", workers=2)
    assert_same(tmp_path / "a", whole)


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("filed", [False, True])
def test_a_run_that_was_played_beside_others_goes_on_alone(
    tmp_path: Path, place: int, filed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where runs share a block, and on resume have other neighbours."""
    if filed:
        monkeypatch.setattr(memories, "IN_MEMORY", 0)
    folder = tmp_path / "memories" if filed else None
    runs = [
        (f"run{k}", run) for k, run in enumerate(Study(**{**ROUNDS, "fusion": "pfnm"}).runs()[1:])
    ]
    data = runs[0][1].dataset.load()
    together, whole = FusionSimulation(runs, data, folder=folder), FusionSimulation(runs, data)
    for engine in (together, whole):
        list(engine.play_round())
    alone = FusionSimulation([runs[place]], data, folder=folder)
    alone.states[0].restore(together.saved()[place])
    while whole.going:
        expected, found = [timeless(one) for one, _ in whole.play_round()], list(alone.play_round())
        assert timeless(found[0][0]) == expected[place]


def test_networks_in_files_give_the_same_bytes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "IN_MEMORY", 0)
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(ROUNDS, tmp_path / "a", on_event=StopAfter(11))
    assert list((tmp_path / "a" / "memories").iterdir())
    tacit.resume(tmp_path / "a")
    assert_same(tmp_path / "a", whole)
    assert not (tmp_path / "a" / "memories").exists()


def test_the_same_study_gives_the_same_bytes_in_one_batch_or_alone(
    whole: Path, tmp_path: Path
) -> None:
    for place, (run, line) in enumerate(
        zip(Results(whole).labels, Study(**ROUNDS).runs(), strict=True)
    ):
        if place % 2 == 0:
            continue
        assert isinstance(line, FusionRun)
        alone = {**ROUNDS, "fusion": line.fusion.name, "widths": line.widths}
        tacit.run(alone, tmp_path / run)
        mine = [{**record, "run": run} for record in history(tmp_path / run)]
        assert mine == [record for record in history(whole) if record["run"] == run]


# Widths, regression, divergence


def test_clients_of_different_widths_are_fused(whole: Path) -> None:
    results = Results(whole)
    for run, spec in results.runs.items():
        widths = [network.widths for network in networks_of(results, run)]
        assert widths == [(width,) for width in spec.widths or (6, 6, 6)]
        for line in (line for line in history(whole) if line["run"] == run):
            assert line["fusion"]["local_widths"] == [[width[0] for width in widths]]
            assert max(widths)[0] <= line["width"] <= sum(width[0] for width in widths)
            assert (line["average_accuracy"] is None) == (spec.widths is not None)
            sizes = [4 * w + w + 3 * w + 3 for (w,) in widths]
            assert line["bytes_up"] == 4 * sum(sizes)
            assert line["bytes_down"] == (4 * sum(sizes) if line["round"] > 1 else 0)


def test_different_widths_by_hand(tmp_path: Path) -> None:
    results = tacit.run(
        {**FUSED, "widths": [9, 4, 6], "model": {"name": "mlp", "hidden": [6, 6]}}, tmp_path / "a"
    )
    run = next(iter(results.labels))
    assert [network.widths for network in networks_of(results, run)] == [(9, 9), (4, 4), (6, 6)]
    assert_state(results.model(run).state_dict(), by_hand(results, run).network)
    x, y = test_data(results, run)
    with torch.no_grad():
        assert accuracy(results.model(run)(x), y) == pytest.approx(
            history(tmp_path / "a")[0]["accuracy"]
        )


def test_a_regression_is_fused_by_its_numbers(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "dataset": "diabetes",
        "fusion": ["pfnm", "spahm"],
        "optimiser": {"name": "sgd", "lr": 0.05},
    }
    results = tacit.run(study, tmp_path / "a")
    for run, line in zip(results.labels, history(tmp_path / "a"), strict=True):
        x, y = test_data(results, run)
        networks, spec = networks_of(results, run), results.runs[run]
        assert isinstance(spec, FusionRun)
        fused = spec.fusion.fuse(networks, numpy_generator(0, "fusion", 1))
        assert_state(results.model(run).state_dict(), fused.network)
        each = [answers(network, x.double().numpy())[:, 0] for network in networks]
        found = answers(fused.network, x.double().numpy())[:, 0]
        assert line["r2"] == pytest.approx(r2_score(y, found), rel=1e-4)
        assert line["loss"] == pytest.approx(float(((found - y.numpy()) ** 2).mean()), rel=1e-5)
        assert line["ensemble_r2"] == pytest.approx(r2_score(y, np.mean(each, axis=0)), rel=1e-4)
        assert line["alone_r2"] == pytest.approx(
            np.mean([r2_score(y, one) for one in each]), rel=1e-4
        )


def test_class_weights_are_refused_where_there_are_no_classes(tmp_path: Path) -> None:
    study = {**FUSED, "dataset": "diabetes", "fusion": {"name": "pfnm", "class_weights": True}}
    with pytest.raises(StudyError, match="class_weights needs classes"):
        tacit.run(study, tmp_path / "a")


def test_a_run_that_diverges_is_recorded_and_harms_no_other(tmp_path: Path) -> None:
    rates = [{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 1e30}]
    results = tacit.run({**FUSED, "rounds": 3, "optimiser": rates}, tmp_path / "both")
    alone = tacit.run({**FUSED, "rounds": 3}, tmp_path / "alone")
    summary = results.summary()
    assert summary["status"].tolist() == ["finished", "diverged"]
    sound = [line for line in history(tmp_path / "both") if line["run"] == summary["run"][0]]
    expected = [{**line, "run": summary["run"][0]} for line in history(tmp_path / "alone")]
    assert sound == expected
    assert alone.summary()["status"].tolist() == ["finished"]
    bad = [line for line in history(tmp_path / "both") if line["run"] == summary["run"][1]]
    assert [line["status"] for line in bad] == ["diverged"]
    assert bad[0]["loss"] is bad[0]["accuracy"] is None
    assert (tmp_path / "both" / "report.html").exists()
    assert pd.isna(results.table().loc[results.names[summary["run"][1]]]).all()
    with pytest.raises(
        StudyError, match="diverged before there was a fused network; use a smaller learning rate"
    ):
        results.model(summary["run"][1])


@pytest.mark.parametrize("rate", [30.0, 1e5])
def test_however_large_the_steps_a_run_ends_in_good_order(tmp_path: Path, rate: float) -> None:
    settings = {
        "rounds": 6,
        "optimiser": {"name": "sgd", "lr": rate},
        "model": {"name": "mlp", "hidden": [4, 4]},
    }
    lines = history(tacit.run({**FUSED, **settings}, tmp_path / "a").folder)
    assert all(line["status"] == "running" for line in lines[:-1])
    assert (lines[-1]["loss"] is None) == (lines[-1]["status"] == "diverged")


def test_a_run_that_diverges_keeps_its_last_sound_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tacit.run(FUSED, tmp_path / "once")
    sound, turns = NetworkTester.compare, iter([1.0, float("nan")])

    def broken(tester: NetworkTester, *networks: Any) -> dict[str, Any]:
        found = sound(tester, *networks)
        return found | {"loss": found["loss"] * next(turns)}

    monkeypatch.setattr(NetworkTester, "compare", broken)
    results = tacit.run({**FUSED, "rounds": 5}, tmp_path / "a")
    assert [line["status"] for line in history(tmp_path / "a")] == ["running", "diverged"]
    (run,), (first,) = results.labels, once.labels
    torch.testing.assert_close(
        results.model(run).state_dict(), once.model(first).state_dict(), rtol=0, atol=0
    )


def test_patience_stops_a_fusion(tmp_path: Path) -> None:
    optimiser = {"name": "sgd", "lr": 1e-9}  # nothing gets better
    tacit.run(
        {**FUSED, "rounds": 30, "patience": 2, "optimiser": optimiser, "local_epochs": 1},
        tmp_path / "a",
    )
    lines = history(tmp_path / "a")
    best = max(range(len(lines)), key=lambda k: (lines[k]["accuracy"], -k))
    assert lines[-1]["status"] == "patience"
    assert len(lines) == best + 3
    assert "assignment" in lines[-1]["fusion"]


def test_runs_with_other_noise_and_widths_beside_it_change_nothing() -> None:
    """Every kind of network has its own samples, and a run's own are at other places among them."""
    data = Study(**FUSED).runs()[0].dataset.load()
    kinds = [
        {"widths": [6, 6, 6], "split": {"name": "feature_noise", "sigma": 0.5}},
        {"widths": [7, 6, 7], "split": {"name": "feature_noise", "sigma": 5.0}},
        {"widths": [8, 8, 8], "split": "iid"},
    ]
    runs = [(str(k), Study(**{**FUSED, **kind}).runs()[0]) for k, kind in enumerate(kinds)]
    for order in (runs, runs[::-1]):
        together = {
            record["run"]: record for record, _ in FusionSimulation(order, data).play_round()
        }
        for id, run in runs:
            ((alone, _),) = FusionSimulation([(id, run)], data).play_round()
            assert {k: v for k, v in together[id].items() if k != "matching_seconds"} == {
                k: v for k, v in alone.items() if k != "matching_seconds"
            }


def test_the_average_of_a_regression_counts_clients_by_their_samples(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "dataset": "diabetes",
        "fusion": "average",
        "split": {"name": "quantity_skew", "beta": 0.3},
    }
    results = tacit.run(study, tmp_path / "a")
    (run,) = results.labels
    sizes = np.array(
        [[client["samples"]] for client in history(tmp_path / "a")[0]["clients"]], float
    )
    assert sizes.max() > 3 * sizes.min()
    wanted = (
        Average().fuse(networks_of(results, run), np.random.default_rng(0), counts=sizes).network
    )
    x, y = test_data(results, run)
    score = r2_score(y, answers(wanted, x.double().numpy())[:, 0])
    assert (
        results.summary()["r2"][0]
        == results.summary()["average_r2"][0]
        == pytest.approx(score, abs=1e-5)
    )


def test_baselines_are_told_apart_by_what_else_varies(tmp_path: Path) -> None:
    rates = [{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 1e30}]
    results = tacit.run(
        {**FUSED, "fusion": ["pfnm", "spahm"], "optimiser": rates, "seed": [0, 1]}, tmp_path / "a"
    )
    table = results.table()["iid"]
    assert len(table) == 4 + 3 * 2
    assert table["local networks, optimiser=sgd(lr=0.1)"] > 0.3
    assert np.isnan(table["local networks, optimiser=sgd(lr=1e+30)"])
    assert np.isnan(table["pfnm, optimiser=sgd(lr=1e+30)"])
    long = results.comparison()
    assert set(long[long["metric"] == "accuracy"]["method"]) == set(table.index)


def test_seconds_of_matching_add_up(tmp_path: Path) -> None:
    results = tacit.run({**FUSED, "rounds": 3}, tmp_path / "a")
    assert results.summary()["matching_seconds"][0] == pytest.approx(
        results.frame()["matching_seconds"].sum()
    )


def test_targets_stop_a_fusion(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "rounds": 30,
        "target_accuracy": 0.3,
        "fusion": {"name": "pfnm", "variance": 0.01},
    }
    results = tacit.run(study, tmp_path / "a")
    lines = history(tmp_path / "a")
    assert lines[-1]["accuracy"] >= 0.3
    assert len(lines) < 30
    assert all(line["accuracy"] < 0.3 for line in lines[:-1])
    run = next(iter(results.labels))
    x, y = test_data(results, run)
    with torch.no_grad():
        assert accuracy(results.model(run)(x), y) == pytest.approx(lines[-1]["accuracy"])
    assert "assignment" in lines[-1]["fusion"]


# What can be asked for


def test_a_grid_has_one_run_of_a_fusion_whatever_the_algorithm() -> None:
    study = Study(
        **{**FUSED, "algorithm": ["fedavg", "fedprox"], "fusion": [None, "pfnm"], "initial": "same"}
    )
    runs = study.runs()
    assert len(runs) == 3
    assert [run.algorithm.name for run in runs if isinstance(run, HorizontalRun)] == [
        "fedavg",
        "fedprox",
    ]
    assert [run.algorithm.name for run in runs if isinstance(run, FusionRun)] == ["local"]


def test_fusions_stand_beside_algorithms_and_a_reference(tmp_path: Path) -> None:
    study = {
        **FUSED,
        "algorithm": ["fedavg", "fedprox"],
        "fusion": [None, "pfnm"],
        "centralised": True,
        "rounds": 2,
    }
    with pytest.warns(
        UserWarning, match="fedavg, fedprox averages networks that start from weights of their own"
    ):
        results = tacit.run(study, tmp_path / "a")
    assert len(results.labels) == 4
    assert (results.summary()["status"] == "finished").all()
    names = [
        "fedavg",
        "pfnm",
        *(f"pfnm: {name}" for name in ("local networks", "naive average", "ensemble")),
    ]
    assert list(results.table().index) == [*names, "fedprox", "centralised"]


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
            "widths: only a fusion .* set fusion: pfnm, say",
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
            "cannot fuse cnn: .*dense layers alone",
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
    with pytest.raises(
        StudyError, match=r"fuses what clients have trained, and 1\.weight is frozen"
    ):
        run.check_data(module, tiny_dataset(), [1, 1, 1])


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_client_without_samples_is_refused(empty: int) -> None:
    run = Study(**FUSED).runs()[0]
    module, sizes = run.model.make((5,), 3), [0 if client == empty else 5 for client in range(3)]
    with pytest.raises(
        StudyError, match=f"client {empty} has no sample to train a network with; use fewer clients"
    ):
        run.check_data(module, tiny_dataset(), sizes)
    run.alone(run.model).check_data(module, tiny_dataset(), sizes)
    run.check_data(module, tiny_dataset(), [1, 1, 1])


def test_a_common_start_is_cautioned_about() -> None:
    same, different = (
        Study(**{**FUSED, "initial": initial}).runs() for initial in ("same", "different")
    )
    assert any("set initial: different" in text for text in cautions(same))
    assert not any("set initial: different" in text for text in cautions(different))


def test_every_fusion_has_a_study(tmp_path: Path) -> None:
    """Whatever is registered can be asked for by name, and leaves a model."""
    names = list(Fusion.known())
    assert {"pfnm", "spahm", "average"} <= set(names)
    results = tacit.run({**FUSED, "fusion": names}, tmp_path / "a")
    assert (results.summary()["status"] == "finished").all()
