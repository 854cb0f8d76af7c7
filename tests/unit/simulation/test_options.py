"""What a study may ask for beside its algorithm, such as lost replies, fine-tuning, public data."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from playground import Quadratic, a_cohort, draft_of, play, simulate, tiny_dataset
from torch import Tensor

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.data.datasets import Dataset, Source
from tacit.data.public import align
from tacit.federated.algorithms.clustered import Clustered, group
from tacit.federated.algorithms.fedprox import AdaptiveFedProx, FedProx
from tacit.federated.behaviour import Behaviour
from tacit.simulation.kinds.horizontal import Simulation, choose
from tacit.simulation.metrics import client_model
from tacit.study.checks import cautions
from tacit.study.run_names import label_runs
from tacit.study.study import Study

D = torch.float64
SMALL: dict[str, Any] = {"dataset": "iris", "model": "linear", "clients": 3, "split": "iid"}
WITH_BUFFERS: dict[str, Any] = {
    "dataset": {"name": "function", "path": "own_code:make_data"},
    "model": "own_code:Net",
}


def started(**settings: Any) -> Simulation:
    (run,) = Study("small", **{"model": "linear", "clients": 3, "rounds": 1, **settings}).runs()
    return Simulation([("a", run)], tiny_dataset(120))


def steps(simulation: Any) -> list[list[int]]:
    """Of each round, every client's steps."""
    return [[client["steps"] for client in record["clients"]] for record in simulation.records]


def linear(x: Tensor, w: Tensor) -> Tensor:
    """What the linear model with the parameters w (18,) answers."""
    return x @ w[:15].view(3, 5).T + w[15:]


def gradient(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Of the linear model's mean loss, by autograd."""
    w = w.detach().clone().requires_grad_()
    torch.nn.functional.cross_entropy(linear(x, w), y).backward()
    assert w.grad is not None
    return w.grad


# Client behaviour


def test_stragglers_stay_slow_and_do_their_share() -> None:
    slow = {"name": "stragglers", "share": 0.5, "work": 0.25}
    done = steps(simulate(tiny_dataset(600), clients=8, batch_size=4, rounds=3, behaviour=slow))
    assert done[0] == done[1] == done[2]
    full = max(done[0])
    assert set(done[0]) == {full, full // 4}


def test_variable_work_is_drawn_anew_and_never_nothing() -> None:
    variable = {"name": "variable", "share": 1.0}
    simulation = simulate(tiny_dataset(600), clients=6, batch_size=4, rounds=6, behaviour=variable)
    done = steps(simulation)
    counts = np.array(done)
    assert counts.min() >= 1
    assert len(np.unique(counts)) > 8
    assert done[0] != done[1]


def test_variable_work_is_uniform_from_one_to_all() -> None:
    rule = Behaviour.build({"name": "variable", "share": 1.0})
    counts = [rule.steps(4, 0, client, 0) for client in range(4000)]
    for count in (1, 2, 3, 4):
        assert abs(counts.count(count) - 1000) < 120
    usual = Behaviour.build("variable")
    counts = [usual.steps(9, 0, client, 0) for client in range(4000)]
    assert abs(counts.count(9) - 4000 * (0.1 + 0.1)) < 130


def test_dropping_the_slow_leaves_them_out() -> None:
    dropping = {"name": "variable", "share": 0.5, "drop": True}
    simulation = simulate(tiny_dataset(600), clients=6, batch_size=4, rounds=5, behaviour=dropping)
    counts = np.array(steps(simulation))
    assert set(counts.flat) == {0, counts[0].max()}
    replies = [record["replies"] for record in simulation.records]  # type: ignore[attr-defined]
    assert replies == (counts > 0).sum(1).tolist()


def test_lost_replies_are_drawn_each_round_and_cost_no_upload() -> None:
    simulation = simulate(tiny_dataset(300), clients=10, rounds=20, dropout=0.3, batch_size=8)
    replies = [record["replies"] for record in simulation.records]  # type: ignore[attr-defined]
    assert 110 < sum(replies) < 165
    for record in simulation.records:  # type: ignore[attr-defined]
        assert record["bytes_up"] * 10 == record["bytes_down"] * record["replies"]


def test_too_few_replies_for_the_combiner_leave_the_model_as_it_was() -> None:
    study: Any = {
        "clients": 5,
        "combiner": {"name": "krum", "f": 1},
        "rounds": 8,
        "dropout": 0.4,
        "batch_size": 8,
    }
    simulation = simulate(tiny_dataset(200), **study)
    records = simulation.records  # type: ignore[attr-defined]
    for before, record in pairwise(records):
        if record["replies"] < 5:
            assert record["loss"] == before["loss"]
    assert any(record["replies"] < 5 for record in records)
    assert simulation.states[0].status == "finished"


def test_a_missing_reply_counted_as_zero_shortens_the_step() -> None:
    """Clients 0 and 1 reply, client 2 does not and client 3 was never asked.

    So the mean is over the first three.
    """
    settings: Any = {
        "clients": 4,
        "split": {"name": "quantity_skew", "beta": 2.0},
        "batch_size": None,
        "selection": {"name": "listed", "lists": [[0, 1, 2]]},
        "dropout": 0.4,
        "missing": "zero",
    }
    seed = next(seed for seed in range(200) if replied(seed=seed, **settings) == [0, 1])
    for algorithm in ("fedavg", "fednova"):  # whose tau is one for all, so that they agree
        simulation = started(seed=seed, algorithm=algorithm, **settings)
        state = simulation.states[0]
        dx = [draft_of(simulation, state, client).message["dx"][0] for client in (0, 1)]
        n = [len(shard) for shard in state.train]
        assert len(set(n)) == 4
        list(simulation.play_round())
        mean = (n[0] * dx[0] + n[1] * dx[1]) / sum(n[:3])
        torch.testing.assert_close(state.server["x"], state.initial + mean)


def replied(**settings: Any) -> list[int]:
    """The clients whose replies of the first round are not lost."""
    _, replying = choose(started(**settings).states[0])
    return replying


def test_a_missing_client_leaves_the_buffers_as_the_server_has_them() -> None:
    settings: Any = {
        **WITH_BUFFERS,
        "clients": 3,
        "algorithm": {"name": "fedavg", "weights": "uniform"},
        "missing": "zero",
        "dropout": 0.5,
        "batch_size": 20,
    }

    def begun(seed: int) -> Simulation:
        (run,) = Study(**settings, seed=seed).runs()
        return Simulation([("a", run)], run.dataset.load())

    simulations = (begun(seed) for seed in range(200))
    simulation = next(item for item in simulations if choose(item.states[0])[1] == [0])
    state = simulation.states[0]
    old = state.buffers["layers.1.running_var"]
    new = draft_of(simulation, state, 0).message["buffers"][0][8:]
    list(simulation.play_round())
    torch.testing.assert_close(state.buffers["layers.1.running_var"], (new + 2 * old) / 3)


def test_a_missing_reply_counted_as_zero_sends_nothing_through_the_wire() -> None:
    seed = next(seed for seed in range(200) if replied(seed=seed, dropout=0.4) == [0, 1])
    wire = [{"name": "top_k", "share": 0.1}]
    simulation = started(seed=seed, dropout=0.4, missing="zero", wire=wire)
    list(simulation.play_round())
    assert set(simulation.states[0].wire_memory) == {0, 1}


# The ball


def test_the_model_is_projected_onto_the_ball() -> None:
    simulation = started(radius=0.5, optimiser={"name": "sgd", "lr": 1.0})
    state = simulation.states[0]
    torch.testing.assert_close(state.server["x"], 0.5 * state.initial / state.initial.norm())
    dx = torch.cat([draft_of(simulation, state, client).message["dx"] for client in range(3)])
    n = torch.tensor([len(shard) for shard in state.train], dtype=D)
    free = state.server["x"] + n @ dx / n.sum()
    list(simulation.play_round())
    torch.testing.assert_close(state.server["x"], 0.5 * free / free.norm())


def test_a_distilled_model_is_projected_too_and_a_wide_ball_changes_nothing() -> None:
    distilled = final_x(rounds=2, radius=0.1, server_samples=9, distillation=2)
    torch.testing.assert_close(distilled.norm().item(), 0.1)
    assert torch.equal(final_x(rounds=3, radius=1e3), final_x(rounds=3, radius=None))


def final_x(**settings: Any) -> Tensor:
    """The global model after the last round."""
    x: Tensor = simulate(tiny_dataset(), **settings).states[0].server["x"]
    return x


# Fine-tuning


def test_fine_tuning_adapts_each_client_s_model_and_leaves_the_training_alone() -> None:
    study: Any = {"split": {"name": "labels_per_party", "labels": 1}, "rounds": 3, "batch_size": 8}
    plain = simulate(tiny_dataset(120), **study)
    tuned = simulate(tiny_dataset(120), fine_tuning=3, **study)
    assert torch.equal(plain.states[0].server["x"], tuned.states[0].server["x"])
    plain_record = plain.records[-1]  # type: ignore[attr-defined]
    tuned_record = tuned.records[-1]  # type: ignore[attr-defined]
    assert tuned_record["local_accuracy"] > tuned_record["central_accuracy"]
    assert tuned_record["central_accuracy"] == plain_record["local_accuracy"]
    assert tuned_record["accuracy"] == plain_record["accuracy"]


def test_one_full_batch_pass_of_fine_tuning_is_one_gradient_step() -> None:
    simulation = started(fine_tuning=1, batch_size=None, optimiser={"name": "sgd", "lr": 0.3})
    state = simulation.states[0]
    row, _ = client_model(simulation.trainer, state, 1)
    shard = state.train[1]
    g = gradient(simulation.samples.x[shard], simulation.samples.y[shard], state.initial)
    torch.testing.assert_close(row, state.initial - 0.3 * g)


# Public data


def test_pre_training_starts_the_study_from_a_better_model() -> None:
    study: Any = {"server_samples": 20, "rounds": 1, "optimiser": {"name": "sgd", "lr": 0.1}}
    raw = simulate(tiny_dataset(120), **study).records[0]  # type: ignore[attr-defined]
    trained = simulate(tiny_dataset(120), pretraining=30, **study).records[0]  # type: ignore[attr-defined]
    assert trained["loss"] < raw["loss"]


def test_two_full_batch_passes_of_pre_training_are_two_gradient_steps() -> None:
    optimiser = {"name": "sgd", "lr": 0.1}
    pretrained = started(
        server_samples=20, pretraining=2, batch_size=None, optimiser=optimiser
    ).states[0]
    plain = started(server_samples=20)
    state = plain.states[0]
    x = plain.samples.x[state.sample]
    y = plain.samples.y[state.sample]
    w = state.initial
    for _ in range(2):
        w = w - 0.1 * gradient(x, y, w)
    torch.testing.assert_close(pretrained.initial, w)
    torch.testing.assert_close(pretrained.server["x"], w)


def test_public_data_come_from_a_table_of_their_own() -> None:
    settings: Any = {"model": "linear", "clients": 3, "rounds": 1, "pretraining": 1}
    (run,) = Study("small", public="iris", **settings).runs()
    public = tiny_dataset(40)

    def pretrained(public: Dataset) -> Tensor:
        return Simulation([("a", run)], tiny_dataset(120), public).states[0].initial

    assert not torch.equal(pretrained(public), pretrained(tiny_dataset(60)))
    odd = replace(public, name="odd", x=public.x[:, :3], test_x=public.test_x[:, :3])
    with pytest.raises(DataError, match=r"odd have samples of shape \(3,\), the study's \(5,\)"):
        pretrained(odd)


def test_distillation_draws_the_model_towards_the_clients_mean_prediction() -> None:
    """On F = CE(softmax mean of logits), full batch, one step.

    The gradient by autograd is the reference.
    """
    settings: Any = {
        "server_samples": 20,
        "batch_size": None,
        "optimiser": {"name": "sgd", "lr": 0.2},
        "split": {"name": "labels_per_party", "labels": 1},
    }
    plain = started(**settings)
    distilled = started(distillation=1, **settings)
    state = plain.states[0]
    public = plain.samples.x[state.sample]
    logits = []
    for client in range(3):
        dx = draft_of(plain, state, client).message["dx"][0]
        logits.append(linear(public, state.initial + dx))
    teacher = torch.stack(logits).mean(0).softmax(1)
    list(plain.play_round())
    list(distilled.play_round())
    x = state.server["x"]
    expected = x - 0.2 * gradient(public, teacher, x)
    torch.testing.assert_close(distilled.states[0].server["x"], expected)


# Clusters


def two_camps(count: int = 6) -> Quadratic:
    draw = torch.Generator().manual_seed(0)
    sides = torch.tensor([[5.0, 0], [-5.0, 1]], dtype=D).repeat_interleave(count // 2, 0)
    return Quadratic(sides + 0.3 * torch.randn(count, 2, dtype=D, generator=draw))


def test_clients_whose_updates_point_the_same_way_share_a_model() -> None:
    problem = two_camps()
    rule = Clustered(clusters=2)
    samples = [1, 2, 3, 4, 5, 6]
    last = play(rule, problem, steps=[3] * 6, samples=samples, rounds=80)[-1]
    member = last["member"]
    assert member[:3].unique().numel() == member[3:].unique().numel() == 1
    assert member[0] != member[5]
    for camp in (slice(0, 3), slice(3, 6)):
        n = torch.tensor(samples[camp], dtype=D)[:, None]
        mean = (n / n.sum() * problem.centres[camp]).sum(0)
        torch.testing.assert_close(last["models"][member[camp][0]], mean)
    assert group(problem.centres, 2).unique().numel() == 2
    mean_over_clients = last["models"][member].mean(0)  # whatever their size
    torch.testing.assert_close(last["x"], mean_over_clients)


def test_the_global_model_is_the_mean_over_all_members_also_of_those_who_are_absent() -> None:
    lists = {"name": "listed", "lists": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0]]}
    study: Any = {
        "clients": 6,
        "split": {"name": "labels_per_party", "labels": 1},
        "selection": lists,
        "batch_size": 8,
        "algorithm": {"name": "clustered", "clusters": 3},
    }
    server = simulate(tiny_dataset(240), rounds=3, **study).states[0].server
    assert server["member"].unique().numel() == 3
    torch.testing.assert_close(server["x"], server["models"][server["member"]].mean(0))


@pytest.mark.parametrize(
    "rule", [{"name": "clustered", "after": 0}, {"name": "fedplus", "kind": "geometric_median"}]
)
def test_a_client_that_sends_nan_is_not_heard(rule: Any) -> None:
    attack = {"kind": "gaussian", "sigma": float("nan")}
    settings: Any = {"algorithm": rule, "attackers": attack, "clients": 4, "rounds": 3}
    state = simulate(tiny_dataset(120), **settings).states[0]
    assert state.status == "finished"
    assert state.server["models"].isfinite().all()


def test_a_client_that_was_absent_joins_the_most_similar_group() -> None:
    split = {"name": "labels_per_party", "labels": 1}
    lists = {"name": "listed", "lists": [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]}
    study: Any = {
        "clients": 6,
        "split": split,
        "selection": lists,
        "batch_size": 8,
        "local_epochs": 3,
    }
    rule = {"name": "clustered", "clusters": 3, "after": 1}
    simulation = simulate(tiny_dataset(240), algorithm=rule, rounds=3, **study)
    state = simulation.states[0]
    label = [int(simulation.samples.y[shard[0]]) for shard in state.train]
    member = state.server["member"].tolist()
    assert min(member) >= 0
    for a in range(6):
        for b in range(6):
            if label[a] == label[b]:
                assert member[a] == member[b]
    record = simulation.records[-1]  # type: ignore[attr-defined]
    assert record["local_accuracy"] > record["central_accuracy"]


# FedProx's mu


def test_mu_falls_while_the_loss_falls_and_rises_when_it_rises() -> None:
    rule = AdaptiveFedProx(mu=0.3, step=0.1, after=2)
    server = dict(rule.server_init(torch.zeros(2, dtype=D), 1))
    path = []
    for loss in (5.0, 4.0, 3.0, 2.0, 2.5, 2.4, 2.3, 2.2, 2.1, 2.0, 1.9):
        cohort = a_cohort({"dx": torch.zeros(1, 2, dtype=D)}, [1], torch.ones(1, 1), rule)
        object.__setattr__(cohort, "client_losses", torch.tensor([[loss]], dtype=D))
        server = dict(rule.aggregate(server, cohort))
        path.append(round(server["mu"], 6))
    assert path == [0.3, 0.2, 0.2, 0.1, 0.2, 0.2, 0.1, 0.1, 0.0, 0.0, 0.0]


def test_the_loss_that_mu_follows_counts_clients_by_their_samples() -> None:
    rule = AdaptiveFedProx()
    cohort = a_cohort({"dx": torch.zeros(2, 2, dtype=D)}, [3, 1], torch.ones(2, 1), rule)
    object.__setattr__(cohort, "client_losses", torch.tensor([[1.0], [5.0]], dtype=D))
    server = rule.server_init(torch.zeros(2, dtype=D), 2)
    assert rule.aggregate(server, cohort)["loss"] == pytest.approx(2.0)
    for wrong in ({"after": 0}, {"step": -1.0}, {"mu": -1.0}):
        with pytest.raises(StudyError, match="fedprox_adaptive: expected"):
            AdaptiveFedProx(**wrong)  # type: ignore[arg-type]


def test_clients_use_the_mu_that_they_are_sent() -> None:
    rule = AdaptiveFedProx(mu=0.5, step=0.0)
    problem = two_camps()
    rounds: Any = {"steps": [4] * 6, "samples": [1] * 6, "rounds": 3}
    adaptive = play(rule, problem, **rounds)[-1]
    fixed = play(FedProx(0.5), problem, **rounds)[-1]
    torch.testing.assert_close(adaptive["x"], fixed["x"])


# What is refused, and what is only said


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"combiner": {"name": "krum", "f": 1}},
            r"n > 2f \+ 2 replies: with f=1 it needs 5, and a round .* has 4",
        ),
        (
            {
                "combiner": {"name": "krum", "f": 1},
                "clients": 20,
                "selection": {"name": "fraction", "c": 0.2},
            },
            "has 4",
        ),
        ({"combiner": "zeno"}, "zeno judges updates on the server's own data; set server_samples"),
        (
            {"algorithm": "scaffold", "optimiser": "adam"},
            "option II computes the mean gradient from the update, which adam",
        ),
        (
            {"algorithm": "fednova", "optimiser": "adam"},
            "under adam these weights depend on the gradients",
        ),
        ({"algorithm": "fednag"}, "averages Nesterov momenta, and sgd has none"),
        (
            {"algorithm": "fedplus", "combiner": "median"},
            "fedplus does not leave the averaging to a combiner; leave out combiner: median",
        ),
        (
            {"algorithm": "local", "combiner": "median"},
            "local does not leave the averaging to a combiner",
        ),
        ({"algorithm": "fedplus", "missing": "zero"}, "keeps a missing client's last model"),
        (
            {"pretraining": 1},
            "pretraining needs data to learn from: name a public table, or set server_samples",
        ),
        ({"distillation": 1}, "distillation needs data to learn from"),
        (
            {"distillation": 1, "server_samples": 9, "algorithm": "fednova"},
            "what fednova sends is not a model",
        ),
        (
            {"distillation": 1, "server_samples": 9, "combiner": "median"},
            "without median, so attackers would still",
        ),
        (
            {"radius": 1, "algorithm": "clustered"},
            "clustered has other models beside the global one",
        ),
        ({"radius": 0}, "radius: expected a number above 0"),
        ({"dropout": 1}, "dropout: expected a share from 0 to below 1"),
        ({"fine_tuning": -1}, "fine_tuning: expected 0 or more"),
        ({"behaviour": {"name": "stragglers", "work": 2}}, "stragglers.work: expected a share"),
        ({"wire": "zip"}, "no stage is called 'zip'"),
        ({"algorithm": "fednova", "initial": "different"}, "computes gradients from w - x"),
        ({"algorithm": "scaffold", "initial": "different"}, "computes gradients from w - x"),
        (
            {"pretraining": 1, "server_samples": 9, "initial": "different"},
            "pretraining has no effect",
        ),
        (
            {"combiner": "zeno", "server_samples": 9, "algorithm": "fednova"},
            "fednova sends an update divided by its steps",
        ),
        (
            {"wire": ["quantise", ["top_k"]]},
            r"a list is one wire of several stages; to vary it, use \{grid",
        ),
        (
            {"attackers": {"count": 4}},
            r"attacker: expected a kind or \{kind: alie, settings\}, got",
        ),
        (
            {"combiner": {"name": "multi_krum", "f": 1, "m": 9}, "clients": 6},
            "use m up to n - f = 5",
        ),
        (
            {"distillation": 1, "server_samples": 9, "algorithm": "clustered"},
            "which clustered does not have",
        ),
    ],
)
def test_meaningless_combinations_are_refused_with_a_reason(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(StudyError, match=reason):
        Study(**settings)


def test_robust_rules_refuse_models_with_buffers() -> None:
    (run,) = Study(combiner="median", **WITH_BUFFERS).runs()
    message = "median protects the parameters, and this model also has buffers"
    with pytest.raises(StudyError, match=message):
        Simulation([("a", run)], run.dataset.load())


def cautions_of(**settings: Any) -> list[str]:
    return cautions(Study(**settings).runs())


def test_what_may_surprise_is_said() -> None:
    assert "amplifies small clients" in cautions_of(algorithm="fednova", split="quantity_skew")[0]
    assert not cautions_of(algorithm="fednova")
    attack = {"kind": "sign_flip", "count": 3}
    weak = cautions_of(clients=9, combiner={"name": "krum", "f": 1}, attackers=attack)
    assert weak == [
        "krum with these settings withstands 1 of 9 replies from attackers,"
        " and the study has 3 attackers"
    ]
    assert not cautions_of(clients=9, combiner={"name": "krum", "f": 3}, attackers=attack)
    assert "which is none of 4" in cautions_of(combiner="trimmed_mean")[0]
    assert not cautions_of(combiner={"name": "trimmed_mean", "beta": 0.0})
    few = {"clients": 6, "combiner": "krum", "dropout": 0.5}
    assert "a round has 3.0; rounds with fewer change nothing" in cautions_of(**few)[0]
    assert not cautions_of(**few, missing="zero")
    assert "neither pretraining nor distillation" in cautions_of(public="iris")[0]


def test_methods_that_weight_clients_differently_are_pointed_out() -> None:
    texts = cautions_of(algorithm=["fedavg", "fedprox", "scaffold"], split="quantity_skew")
    assert "fedavg, fedprox weights clients by their samples, and scaffold" in texts[0]
    assert not cautions_of(algorithm=["fedavg", "scaffold"], split="iid")
    weighted = {"name": "scaffold", "weights": "samples"}
    assert not cautions_of(algorithm=["fedavg", weighted], split="quantity_skew")


def test_rounds_without_enough_replies_are_counted(tmp_path: Path) -> None:
    study = {**SMALL, "clients": 5, "combiner": "krum", "dropout": 0.3, "rounds": 6}
    results = tacit.run(study, tmp_path / "a", on_event=print)
    idle = sum(record["replies"] < 5 for record in results.records)
    assert 0 < idle < 6
    caution = f"000-iid-fedavg: in {idle} of 6 rounds too few replied to change it"
    assert results.cautions[-1] == caution
    assert caution in results.report.read_text()


def test_a_missing_reply_counted_as_zero_counts_for_the_combiner_too() -> None:
    study: Any = {"clients": 5, "rounds": 4, "dropout": 0.4, "missing": "zero", "batch_size": 8}
    study["combiner"] = {"name": "krum", "f": 1}
    records = simulate(tiny_dataset(200), **study).records  # type: ignore[attr-defined]
    assert all(record["updated"] == (record["replies"] > 0) for record in records)
    assert any(record["replies"] < 5 for record in records)


def test_every_client_s_own_model_is_saved(tmp_path: Path) -> None:
    results = tacit.run({**SMALL, "algorithm": ["fedplus", "fedavg"], "rounds": 3}, tmp_path / "a")
    plus, plain = results.labels
    rows = [flat(results.model(plus, client=client)) for client in range(3)]
    assert not torch.equal(rows[0], rows[1])
    torch.testing.assert_close(torch.stack(rows).mean(0), flat(results.model(plus)))
    with pytest.raises(StudyError, match="has no model of its own for client 1"):
        results.model(plain, client=1)
    with pytest.raises(StudyError, match="has no model of its own for client 9"):
        results.model(plus, client=9)


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.flatten() for parameter in module.parameters()])


def test_a_public_table_is_read_by_its_columns_names_units_and_classes(tmp_path: Path) -> None:
    """The study's own rows, with their columns in another order and one of them shifted."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal([[1, 50, -3]], [[1, 9, 2]], size=(60, 3)), columns=list("abc"))
    frame["kind"] = np.where(frame["a"] > 1, "yes", "no")
    changed = frame[["kind", "c", "a", "b"]].assign(c=frame["c"] + 1)
    private = as_table(frame, tmp_path / "private.csv")
    public = as_table(changed, tmp_path / "public.csv")
    x, y = align(public, private)
    assert len(x) == 60
    rows = (x * private.spread + private.centre).numpy()  # type: ignore[operator]
    order = np.argsort(rows[:, 0])
    expected = changed.sort_values("a")
    np.testing.assert_allclose(rows[order], expected[["a", "b", "c"]], rtol=1e-3, atol=1e-3)
    assert [private.labels[label] for label in y[order]] == expected["kind"].tolist()
    assert public.frame is not None
    for change, reason in (
        ({"columns": ("a", "b", "z"), "frame": None}, "differ in columns: c, z"),
        ({"frame": public.frame.rename(columns={"c": "z"})}, "the rows have no column 'c'"),
        ({"labels": ("no", "maybe")}, "a class 'maybe'"),
    ):
        with pytest.raises(DataError, match=reason):
            align(replace(public, **change), private)  # type: ignore[arg-type]


def as_table(frame: pd.DataFrame, path: Path) -> Dataset:
    frame.to_csv(path, index=False)
    return Source.build({"name": "table", "path": str(path), "target": "kind"}).load()


def test_a_wire_of_two_stages_is_one_value_and_a_grid_of_wires_is_spelt_out() -> None:
    assert len(Study(wire=["top_k", "quantise"]).runs()) == 1
    two_stages = [{"name": "top_k", "share": [0.1, 0.2]}, "quantise"]
    study = Study(wire={"grid": [[], "quantise", two_stages]})
    wires = [[stage.name for stage in run.wire] for run in study.runs()]
    assert wires == [[], ["quantise"], ["top_k", "quantise"], ["top_k", "quantise"]]
    names = [label["wire"] for label in label_runs(study.runs())]
    assert names == [
        "plain",
        "quantise",
        "top_k(share=0.1) + quantise",
        "top_k(share=0.2) + quantise",
    ]
    assert Study(**study.to_dict()).runs() == study.runs()


def test_fine_tuned_buffers_are_used() -> None:
    (run,) = Study(**WITH_BUFFERS, clients=3, fine_tuning=1, batch_size=20).runs()
    simulation = Simulation([("a", run)], run.dataset.load())
    state = simulation.states[0]
    _, first = client_model(simulation.trainer, state, 0)
    _, second = client_model(simulation.trainer, state, 1)
    name = "layers.1.running_mean"
    assert not torch.equal(first[name], state.buffers[name])
    assert not torch.equal(first[name], second[name])


@pytest.mark.parametrize("algorithm", ["fedplus", "clustered", "local"])
def test_personal_methods_refuse_models_with_buffers(algorithm: str) -> None:
    (run,) = Study(algorithm=algorithm, **WITH_BUFFERS).runs()
    with pytest.raises(StudyError, match="its own model, but this model's buffers"):
        Simulation([("a", run)], run.dataset.load())


def test_batch_statistics_need_two_public_samples() -> None:
    (run,) = Study(pretraining=1, server_samples=21, batch_size=20, **WITH_BUFFERS).runs()
    with pytest.raises(StudyError, match="21 server_samples leave one for"):
        Simulation([("a", run)], run.dataset.load())


def test_the_servers_sample_is_drawn_anew_each_round() -> None:
    simulation = started(server_samples=60)
    state = simulation.states[0]
    dx = torch.zeros(2, 18, dtype=D)

    def losses_in(round: int) -> Tensor:
        server_state = replace(state.server_state, round=round)
        losses = simulation.server_data[state.id].losses(server_state)
        assert losses
        return losses(dx, 10)

    assert torch.equal(losses_in(0), losses_in(0))
    assert losses_in(0)[0] == losses_in(0)[1]
    assert not torch.equal(losses_in(0), losses_in(1))
