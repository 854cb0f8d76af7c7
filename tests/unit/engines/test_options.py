"""What a study may ask for beside its algorithm: behaviour, lost replies, a ball, fine-tuning, public data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from playground import Quadratic, play, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.data.datasets import Dataset
from tacit.engines import clients
from tacit.engines.checks import cautions
from tacit.engines.simulation import Simulation
from tacit.engines.study import Study
from tacit.federated.algorithms.clustered import Clustered, group
from tacit.federated.algorithms.fedprox import AdaptiveFedProx
from tacit.federated.behaviour import Behaviour

D = torch.float64


def started(**settings: Any) -> Simulation:
    run = Study("small", **{"model": "linear", "clients": 3, "rounds": 1, **settings}).runs()[0]
    return Simulation([("a", run)], tiny_dataset(120))


def steps(simulation: Any) -> list[list[int]]:
    return [[client["steps"] for client in record["clients"]] for record in simulation.records]


# Client behaviour


def test_stragglers_stay_slow_and_do_their_share() -> None:
    slow = {"name": "stragglers", "share": 0.5, "work": 0.25}
    done = steps(simulate(tiny_dataset(600), clients=8, batch_size=4, rounds=3, behaviour=slow))
    assert done[0] == done[1] == done[2]
    full, part = max(done[0]), min(done[0])
    assert part == full // 4
    assert set(done[0]) == {full, part}


def test_variable_work_is_drawn_anew_and_never_nothing() -> None:
    done = steps(
        simulate(tiny_dataset(600), clients=6, batch_size=4, rounds=6, behaviour={"name": "variable", "share": 1.0})
    )
    everyone = [count for record in done for count in record]
    assert min(everyone) >= 1
    assert len(set(everyone)) > 8
    assert done[0] != done[1]


def test_variable_work_is_uniform_from_one_to_all() -> None:
    rule = Behaviour.build({"name": "variable", "share": 1.0})
    found = [rule.steps(4, 0, client, 0) for client in range(4000)]
    for count in (1, 2, 3, 4):
        assert abs(found.count(count) - 1000) < 120
    assert abs(sum(Behaviour.build("variable").steps(9, 0, k, 0) == 9 for k in range(4000)) - 4000 * (0.1 + 0.1)) < 130


def test_dropping_the_slow_leaves_them_out() -> None:
    settings: Any = {"clients": 6, "batch_size": 4, "rounds": 5}
    simulation = simulate(tiny_dataset(600), behaviour={"name": "variable", "share": 0.5, "drop": True}, **settings)
    done = steps(simulation)
    assert {count for record in done for count in record} == {0, max(done[0])}
    assert [r["replies"] for r in simulation.records] == [sum(c > 0 for c in record) for record in done]  # type: ignore[attr-defined]


def test_lost_replies_are_drawn_each_round_and_cost_no_upload() -> None:
    simulation = simulate(tiny_dataset(300), clients=10, rounds=20, dropout=0.3, batch_size=8)
    replies = [record["replies"] for record in simulation.records]  # type: ignore[attr-defined]
    assert 110 < sum(replies) < 165
    for record in simulation.records:  # type: ignore[attr-defined]
        assert record["bytes_up"] * 10 == record["bytes_down"] * record["replies"]


def test_too_few_replies_for_the_combiner_leave_the_model_as_it_was() -> None:
    study: Any = {"clients": 5, "combiner": {"name": "krum", "f": 1}, "rounds": 8, "dropout": 0.4, "batch_size": 8}
    simulation = simulate(tiny_dataset(200), **study)
    records, before = simulation.records, None  # type: ignore[attr-defined]
    for record in records:
        if record["replies"] < 5:
            assert before is None or record["loss"] == before
        before = record["loss"]
    assert any(r["replies"] < 5 for r in records)
    assert simulation.states[0].status == "finished"


def test_a_missing_reply_counted_as_zero_shortens_the_step() -> None:
    """Clients 0 and 1 reply, client 2 does not: the mean is over three, one of which moved nowhere."""
    lost = next(s for s in range(200) if replied(s) == [0, 1])
    simulation = started(seed=lost, dropout=0.4, missing="zero")
    state = simulation.states[0]
    dx = [clients.work(simulation, [(state, k)])[0].message["dx"][0] for k in (0, 1)]  # type: ignore[union-attr]
    n = [len(part) for part in state.train]
    list(simulation.play_round())
    torch.testing.assert_close(state.server["x"], state.initial + (n[0] * dx[0] + n[1] * dx[1]) / sum(n))


def replied(seed: int) -> list[int]:
    return clients.choose(started(seed=seed, dropout=0.4).states[0])[1]


def test_a_missing_reply_counted_as_zero_sends_nothing_through_the_wire() -> None:
    lost = next(s for s in range(200) if replied(s) == [0, 1])
    simulation = started(seed=lost, dropout=0.4, missing="zero", wire=[{"name": "top_k", "share": 0.1}])
    list(simulation.play_round())
    assert set(simulation.states[0].wire_memory) == {0, 1}


# The ball


def test_the_model_is_projected_onto_the_ball() -> None:
    free = simulate(tiny_dataset(), rounds=5).states[0].server["x"]
    kept = simulate(tiny_dataset(), rounds=1, radius=0.5).states[0].server["x"]
    first = simulate(tiny_dataset(), rounds=1).states[0].server["x"]
    torch.testing.assert_close(kept, 0.5 * first / first.norm())
    taught = simulate(tiny_dataset(), rounds=2, radius=0.5, server_samples=9, distillation=2).states[0].server["x"]
    torch.testing.assert_close(taught.norm().item(), 0.5)
    wide = simulate(tiny_dataset(), rounds=5, radius=1e3).states[0].server["x"]
    assert torch.equal(wide, free)


# Fine-tuning


def test_fine_tuning_adapts_each_client_s_model_and_leaves_the_training_alone() -> None:
    study: Any = {"split": {"name": "labels_per_party", "labels": 1}, "rounds": 3, "batch_size": 8}
    plain, tuned = (simulate(tiny_dataset(120), fine_tuning=e, **study) for e in (0, 3))
    assert torch.equal(plain.states[0].server["x"], tuned.states[0].server["x"])
    last = tuned.records[-1]  # type: ignore[attr-defined]
    assert last["local_accuracy"] > last["central_accuracy"]
    assert last["central_accuracy"] == plain.records[-1]["local_accuracy"]  # type: ignore[attr-defined]
    assert last["accuracy"] == plain.records[-1]["accuracy"]  # type: ignore[attr-defined]


def test_one_full_batch_pass_of_fine_tuning_is_one_gradient_step() -> None:
    simulation = started(fine_tuning=1, batch_size=None, optimiser={"name": "sgd", "lr": 0.3})
    state = simulation.states[0]
    row, _ = clients.personal_model(simulation, state, 1)
    x, y = simulation.pool.x[state.train[1]], simulation.pool.y[state.train[1]]
    w = state.initial.clone().requires_grad_()
    torch.nn.functional.cross_entropy(x @ w[:15].view(3, 5).T + w[15:], y).backward()
    torch.testing.assert_close(row, state.initial - 0.3 * w.grad)  # type: ignore[operator]


# Public data


def test_pre_training_starts_the_study_from_a_trained_model() -> None:
    study: Any = {"server_samples": 20, "rounds": 1, "optimiser": {"name": "sgd", "lr": 1e-12}}
    raw, trained = (
        simulate(tiny_dataset(120), pretraining=e, **{**study, "optimiser": {"name": "sgd", "lr": lr}})
        for e, lr in ((0, 0.1), (30, 0.1))
    )
    assert trained.records[0]["loss"] < raw.records[0]["loss"]  # type: ignore[attr-defined]
    state = started(server_samples=20, pretraining=2, batch_size=None, optimiser={"name": "sgd", "lr": 0.1}).states[0]
    plain = started(server_samples=20)
    w = plain.states[0].initial
    x, y = plain.pool.x[plain.states[0].sample], plain.pool.y[plain.states[0].sample]
    for _ in range(2):
        v = w.clone().requires_grad_()
        torch.nn.functional.cross_entropy(x @ v[:15].view(3, 5).T + v[15:], y).backward()
        w = w - 0.1 * v.grad  # type: ignore[operator]
    torch.testing.assert_close(state.initial, w)
    torch.testing.assert_close(state.server["x"], w)


def test_public_data_come_from_a_table_of_their_own() -> None:
    run = Study("small", model="linear", clients=3, rounds=1, pretraining=1, public="iris").runs()[0]
    other = tiny_dataset(40)
    trained = Simulation([("a", run)], tiny_dataset(120), other).states[0]
    assert not torch.equal(
        trained.initial, Simulation([("a", run)], tiny_dataset(120), tiny_dataset(60)).states[0].initial
    )
    odd = Dataset("odd", other.x[:, :3], other.y, other.test_x[:, :3], other.test_y, other.labels)
    with pytest.raises(StudyError, match=r"samples of shape \(5,\) in 3 classes, got \(3,\) in 3"):
        Simulation([("a", run)], tiny_dataset(120), odd)


def test_distillation_draws_the_model_towards_the_clients_mean_prediction() -> None:
    """On F = CE(softmax mean of logits), full batch, one step: the gradient by autograd is the reference."""
    settings: Any = {"server_samples": 20, "batch_size": None, "optimiser": {"name": "sgd", "lr": 0.2}}
    settings["split"] = {"name": "labels_per_party", "labels": 1}
    plain, distilled = started(**settings), started(distillation=1, **settings)
    state = plain.states[0]
    public = plain.pool.x[state.sample]

    def logits(w: torch.Tensor) -> torch.Tensor:
        return public @ w[:15].view(3, 5).T + w[15:]

    models = [state.initial + clients.work(plain, [(state, k)])[0].message["dx"][0] for k in range(3)]  # type: ignore[union-attr]
    teacher = torch.stack([logits(w) for w in models]).mean(0).softmax(1)
    list(plain.play_round()), list(distilled.play_round())
    w = plain.states[0].server["x"].clone().requires_grad_()
    torch.nn.functional.cross_entropy(logits(w), teacher).backward()
    torch.testing.assert_close(distilled.states[0].server["x"], w.detach() - 0.2 * w.grad)  # type: ignore[operator]


# Clusters


def two_camps(count: int = 6) -> Quadratic:
    draw = torch.Generator().manual_seed(0)
    sides = torch.tensor([[5.0, 0], [-5.0, 1]], dtype=D).repeat_interleave(count // 2, 0)
    return Quadratic(sides + 0.3 * torch.randn(count, 2, dtype=D, generator=draw))


def test_clients_whose_updates_point_the_same_way_share_a_model() -> None:
    problem = two_camps()
    last = play(Clustered(clusters=2), problem, steps=[3] * 6, samples=[1, 2, 3, 4, 5, 6], rounds=80)[-1]
    member = last["member"]
    assert member[:3].unique().numel() == member[3:].unique().numel() == 1
    assert member[0] != member[5]
    for clients_, n in ((slice(0, 3), [1.0, 2, 3]), (slice(3, 6), [4.0, 5, 6])):
        weights = torch.tensor(n, dtype=D)[:, None] / sum(n)
        torch.testing.assert_close(last["models"][member[clients_][0]], (weights * problem.centres[clients_]).sum(0))
    assert group(problem.centres, 2).unique().numel() == 2


def test_a_client_that_was_absent_joins_the_most_similar_group() -> None:
    split = {"name": "labels_per_party", "labels": 1}
    lists = {"name": "listed", "lists": [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]}
    study: Any = {"clients": 6, "split": split, "selection": lists, "batch_size": 8, "local_epochs": 3}
    rule = {"name": "clustered", "clusters": 3, "after": 1}
    simulation = simulate(tiny_dataset(240), algorithm=rule, rounds=3, **study)
    state = simulation.states[0]
    owner = [int(simulation.pool.y[part[0]]) for part in state.train]
    member = state.server["member"].tolist()
    assert min(member) >= 0
    for a in range(6):
        for b in range(6):
            if owner[a] == owner[b]:
                assert member[a] == member[b]
    assert simulation.records[-1]["local_accuracy"] > simulation.records[-1]["central_accuracy"]  # type: ignore[attr-defined]


# FedProx's mu


def test_mu_falls_while_the_loss_falls_and_rises_when_it_rises() -> None:
    from playground import a_cohort

    rule = AdaptiveFedProx(mu=0.3, step=0.1, after=2)
    server = dict(rule.server_init(torch.zeros(2, dtype=D), 1))
    path = []
    for loss in (5.0, 4.0, 3.0, 2.0, 2.5, 2.4, 2.3, 2.2, 2.1, 2.0, 1.9):
        cohort = a_cohort({"dx": torch.zeros(1, 2, dtype=D)}, [1], torch.ones(1, 1), rule)
        object.__setattr__(cohort, "client_losses", torch.tensor([[loss]], dtype=D))
        server = dict(rule.aggregate(server, cohort))
        path.append(round(server["mu"], 6))
    assert path == [0.3, 0.2, 0.2, 0.1, 0.2, 0.2, 0.1, 0.1, 0.0, 0.0, 0.0]


def test_clients_use_the_mu_that_they_are_sent() -> None:
    rule = AdaptiveFedProx(mu=0.5, step=0.0)
    problem = two_camps()
    how: Any = {"steps": [4] * 6, "samples": [1] * 6, "rounds": 3}
    from tacit.federated.algorithms.fedprox import FedProx

    torch.testing.assert_close(play(rule, problem, **how)[-1]["x"], play(FedProx(0.5), problem, **how)[-1]["x"])


# What is refused, and what is only said


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"combiner": {"name": "krum", "f": 1}}, r"n > 2f \+ 2 replies: with f=1 it needs 5, and a round .* has 4"),
        ({"combiner": {"name": "krum", "f": 1}, "clients": 20, "selection": {"name": "fraction", "c": 0.2}}, "has 4"),
        ({"combiner": "zeno"}, "zeno judges updates on the server's own data; set server_samples"),
        (
            {"algorithm": "scaffold", "optimiser": "adam"},
            "option II reads the mean gradient off the update, which adam",
        ),
        ({"algorithm": "fednova", "optimiser": "adam"}, "under adam these weights depend on the gradients"),
        ({"algorithm": "fednag"}, "averages Nesterov momenta, and sgd has none"),
        (
            {"algorithm": "fedplus", "combiner": "median"},
            "fedplus combines the clients' models itself; leave out combiner: median",
        ),
        ({"algorithm": "local", "combiner": "median"}, "local combines the clients' models itself"),
        ({"algorithm": "fedplus", "missing": "zero"}, "keeps a missing client's last model"),
        ({"pretraining": 1}, "pretraining needs data to learn from: name a public table, or set server_samples"),
        ({"distillation": 1}, "distillation needs data to learn from"),
        ({"distillation": 1, "server_samples": 9, "algorithm": "fednova"}, "what fednova sends is no model"),
        ({"distillation": 1, "server_samples": 9, "combiner": "median"}, "past median, so a liar would be heard"),
        ({"radius": 1, "algorithm": "clustered"}, "clustered has more models than the global one"),
        ({"radius": 0}, "radius: expected a number above 0"),
        ({"dropout": 1}, "dropout: expected a share from 0 to below 1"),
        ({"fine_tuning": -1}, "fine_tuning: expected 0 or more"),
        ({"behaviour": {"name": "stragglers", "work": 2}}, "stragglers.work: expected a share"),
        ({"wire": "zip"}, "no stage is called 'zip'"),
    ],
)
def test_meaningless_combinations_are_refused_with_a_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError, match=reason):
        Study(**settings)


def test_robust_rules_refuse_models_with_buffers() -> None:
    own: Any = {"dataset": {"name": "function", "path": "own_code:make_data"}, "model": "own_code:Net"}
    run = Study(combiner="median", **own).runs()[0]
    with pytest.raises(StudyError, match="median protects the parameters, and this model also has buffers"):
        Simulation([("a", run)], run.dataset.load())


def test_what_may_surprise_is_said() -> None:
    skewed = Study(algorithm="fednova", split="quantity_skew").runs()[0]
    assert "amplifies small clients" in cautions(skewed)[0]
    assert not cautions(Study(algorithm="fednova").runs()[0])
    attack = {"kind": "sign_flip", "count": 3}
    weak = Study(clients=9, combiner={"name": "krum", "f": 1}, attackers=attack).runs()[0]
    assert cautions(weak) == ["krum as set here withstands 1 liars among 9 replies, and the study has 3 attackers"]
    assert not cautions(Study(clients=9, combiner={"name": "krum", "f": 3}, attackers=attack).runs()[0])


def test_a_wire_of_two_stages_is_one_value_and_a_grid_of_wires_is_spelt_out() -> None:
    assert len(Study(wire=["top_k", "quantise"]).runs()) == 1
    study = Study(wire={"grid": [[], "quantise", [{"name": "top_k", "share": [0.1, 0.2]}, "quantise"]]})
    assert [[stage.name for stage in run.wire] for run in study.runs()] == [
        [],
        ["quantise"],
        ["top_k", "quantise"],
        ["top_k", "quantise"],
    ]
    from tacit.engines.naming import label_runs

    names = [label["wire"] for label in label_runs(study.runs())]
    assert names == ["plain", "quantise", "top_k(share=0.1) + quantise", "top_k(share=0.2) + quantise"]
    assert Study(**study.to_dict()).runs() == study.runs()
