"""The horizontal engine: runs in one batch or alone, their state, their figures and their ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from own_code import Memorious
from playground import FAST, draft_of, simulate, tiny_dataset
from torch import Tensor, nn

from tacit.core.errors import DataError, StudyError
from tacit.core.rows import Rows
from tacit.data.datasets import Source
from tacit.execution.blocks import group_runs
from tacit.federated.algorithm import Algorithm
from tacit.federated.client_side import client_class
from tacit.federated.cohort import Cohort
from tacit.federated.combine.combiner import Combiner
from tacit.rounds.client import draw_batches
from tacit.rounds.participant import Draft
from tacit.simulation.kinds.horizontal import Simulation, choose, shares_nothing
from tacit.simulation.state import RunState
from tacit.study.study import Study
from tacit.training.batches import ListedBatches
from tacit.training.kernel_layers import DenseLayer
from tacit.training.kernel_network import KernelNetwork
from tacit.training.kernel_reader import read
from tacit.training.row_module import answers_alike
from tacit.training.torch_modes import draws_numbers
from tacit.training.trainer import Work

OWN = {
    "dataset": {"name": "function", "path": "own_code:make_data"},
    "model": {"name": "module", "path": "own_code:Net"},
}


def final_x(*data: Any, **settings: Any) -> Tensor:
    """The global model of a small study of one run, after its last round."""
    x: Tensor = simulate(*data, **settings).states[0].server["x"]
    return x


def groups_of(study: Study) -> list[Any]:
    """The runs that share a batch."""
    return group_runs([(str(number), run) for number, run in enumerate(study.runs())])


def play_to_the_end(simulation: Simulation) -> list[dict[str, Any]]:
    """The records of all rounds."""
    records: list[dict[str, Any]] = []
    while simulation.going:
        records += [record for record, _ in simulation.play_round()]
    return records


def test_two_mu_in_one_batch_equal_each_run_alone_to_the_bit() -> None:
    settings = {"dataset": "digits", "model": "mlp", "local_epochs": [2, 1, 1], "rounds": 3}
    together = simulate(algorithm={"name": "fedprox", "mu": [0.01, 1]}, **settings)
    for state, mu in zip(together.states, (0.01, 1), strict=True):
        alone = final_x(algorithm={"name": "fedprox", "mu": mu}, **settings)
        assert torch.equal(state.server["x"], alone)
    first, second = together.states
    assert not torch.equal(first.server["x"], second.server["x"])


def test_runs_share_a_batch_when_only_float_settings_and_data_differ() -> None:
    study = Study(
        split=["iid", "quantity_skew"],
        algorithm=["fedavg", "fedsgd", {"name": "fedprox", "mu": [0.1, 1]}],
        optimiser=[{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 0.2}],
        seed=[0, 1],
    )
    assert [len(group) for group in groups_of(study)] == [16, 16]
    different = Study(optimiser=["sgd", "momentum"], model=["linear", "mlp"])
    assert len(groups_of(different)) == 4


@pytest.mark.parametrize("algorithm", ["fedavg", {"name": "scaffold", "option": "I"}])
def test_clients_side_by_side_give_the_same_bits(algorithm: Any) -> None:
    settings = {
        "dataset": "digits",
        "model": "mlp",
        "clients": 5,
        "rounds": 2,
        "algorithm": algorithm,
    }
    data = Source.build("digits").load()
    (run,) = Study(**settings).runs()
    rows = []
    for side_by_side in (1, 3):
        simulation = Simulation([("one", run)], data, side_by_side=side_by_side)
        play_to_the_end(simulation)
        rows.append(simulation.states[0].server["x"])
    assert torch.equal(*rows)


class Noisy(nn.Module):
    """Draws without a layer that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(nn.functional.dropout(x, 0.5, self.training))
        return out


def test_clients_that_share_a_generator_or_a_file_train_in_turn() -> None:
    data = Source.build("digits").load()

    def begun(**settings: Any) -> RunState:
        (run,) = Study(**settings).runs()
        return Simulation([("one", run)], data, side_by_side=2).states[0]

    assert shares_nothing(begun())
    assert not shares_nothing(begun(algorithm=Memorious()))
    different = begun(initial="different")
    assert not shares_nothing(different)
    different.round = 1  # the clients' own weights have been drawn
    assert shares_nothing(different)


def test_full_gradients_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = {
        "dataset": "digits",
        "algorithm": {"name": "scaffold", "option": "I"},
        "rounds": 2,
        "clients": 3,
        "split": "quantity_skew",
    }
    at_once = simulate(form="captured", **settings).states[0].server
    monkeypatch.setattr("tacit.training.row_trainer.FULL", 50)
    in_parts = simulate(form="captured", **settings).states[0].server
    assert torch.allclose(at_once["c"], in_parts["c"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tracked", [True, False])
def test_padding_never_enters_batch_statistics(tracked: bool) -> None:
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.BatchNorm1d(8, track_running_stats=tracked),
        nn.Linear(8, 10),
    )
    data = Source.build("digits").load()
    study = Study(model=model, split="quantity_skew", clients=3, rounds=2, batch_size=30)
    (run,) = study.runs()
    x = {}
    for form in ("loop", "vmap", "captured"):
        simulation = Simulation([("one", run)], data, form=form)
        play_to_the_end(simulation)
        x[form] = simulation.states[0].server["x"]
    assert torch.allclose(x["loop"], x["vmap"], rtol=1e-3, atol=1e-4)
    assert torch.allclose(x["loop"], x["captured"], rtol=1e-3, atol=1e-4)


def test_a_network_that_answers_otherwise_than_its_module_is_not_used() -> None:
    pytest.importorskip("triton")
    run = Study(model={"name": "mlp", "hidden": [9]}, clients=2, rounds=1).runs()[0]
    simulation = Simulation([("one", run)], Source.build("digits").load(), form="captured")
    network = read(simulation.module, tuple(simulation.dataset.x.shape[1:]))
    assert network is not None
    x = simulation.samples.x[:2]
    assert answers_alike(network, simulation.module, x)
    first, last = network.layers
    assert isinstance(first, DenseLayer)
    changed = KernelNetwork((replace(first, relu=False), last))
    assert not answers_alike(changed, simulation.module, x)


def test_samples_in_any_order_of_memory_are_read_rightly() -> None:
    data = Source.build("digits").load()
    turned = replace(data, x=data.x.transpose(2, 3).contiguous().transpose(2, 3))
    assert not turned.x.is_contiguous()
    run = Study(model="mlp", clients=2, rounds=1).runs()[0]
    simulation = Simulation([("one", run)], turned, form="captured")
    assert simulation.samples.train.x.is_contiguous()
    assert torch.equal(simulation.samples.x, data.x)


def test_a_model_that_draws_is_found_out_and_trains_alone() -> None:
    x = torch.rand(2, 5)
    assert draws_numbers(Noisy(), x)
    assert draws_numbers(nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5)), x)
    assert not draws_numbers(nn.Linear(5, 2), x)
    run = Study(model=Noisy, clients=3, rounds=1).runs()[0]
    simulation = Simulation(
        [("one", run)], tiny_dataset(), side_by_side=3, form="captured", at_once=100
    )
    assert simulation.trainer.at_once == 1
    assert simulation.trainer.draws


@pytest.mark.parametrize(
    "settings",
    [
        {
            "algorithm": {"name": "fedprox", "mu": [0.01, 1]},
            "optimiser": "adam",
            "split": ["iid", "quantity_skew"],
        },
        {
            "algorithm": ["scaffold", {"name": "scaffold", "option": "I"}],
            "selection": {"name": "fraction", "c": 0.5},
        },
        {"algorithm": "fedplus", "behaviour": "variable"},
        {"algorithm": "fedprox", "fine_tuning": 1, "dropout": 0.3, "batch_size": None},
        {
            "algorithm": "fedavg",
            "wire": ["top_k"],
            "combiner": "median",
            "local_epochs": [3, 1, 1, 2],
        },
        {"algorithm": "fedavg", "server_samples": 50, "pretraining": 1, "distillation": 1},
        {"algorithm": "fednag", "optimiser": "nesterov", "schedule": {"name": "step", "every": 1}},
    ],
)
def test_the_form_for_a_gpu_plays_the_same_study(settings: dict[str, Any]) -> None:
    data = Source.build("digits").load()
    study = Study(**{"dataset": "digits", "model": "mlp", "clients": 4, "rounds": 3, **settings})
    for group in groups_of(study):
        looped = Simulation(group, data, form="loop")
        captured = Simulation(group, data, form="captured")
        records = zip(play_to_the_end(looped), play_to_the_end(captured), strict=True)
        for a, b in records:
            assert a["accuracy"] == pytest.approx(b["accuracy"], abs=0.01)
            assert steps_in(a) == steps_in(b)
            assert a["replies"] == b["replies"]
        states = zip(looped.states, captured.states, strict=True)
        for a, b in states:
            assert torch.allclose(a.server["x"], b.server["x"], rtol=1e-3, atol=1e-4)


def steps_in(record: dict[str, Any]) -> list[int]:
    return [client["steps"] for client in record["clients"]]


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    assert torch.equal(final_x(seed=3), final_x(seed=3))
    assert not torch.equal(final_x(seed=3), final_x(seed=4))


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    x = final_x(**OWN)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(x, final_x(**OWN))


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_buffers_travel_float_ones_averaged_and_counters_copied(form: str) -> None:
    simulation = simulate(form=form, **OWN, clients=2, batch_size=20)
    buffers = simulation.states[0].buffers
    assert buffers["layers.1.num_batches_tracked"] > 0
    assert buffers["layers.1.running_mean"].abs().sum() > 0
    fresh = simulate(**OWN, clients=1, batch_size=20).states[0].buffers
    assert not torch.equal(fresh["layers.1.running_mean"], buffers["layers.1.running_mean"])


def test_averaged_buffers_are_the_weighted_mean_of_the_clients() -> None:
    study = Study(**OWN, clients=2, rounds=1, split={"name": "quantity_skew", "beta": 2.0})  # type: ignore[arg-type]
    (run,) = study.runs()
    simulation = Simulation([("a", run)], run.dataset.load())
    state = simulation.states[0]
    rows = torch.cat([draft.message["buffers"] for draft in drafts_of(simulation)])
    list(simulation.play_round())
    n = torch.tensor([len(shard) for shard in state.train], dtype=torch.float32)
    expected = (n[:, None] * rows).sum(0) / n.sum()
    mean = state.buffers["layers.1.running_mean"]
    variance = state.buffers["layers.1.running_var"]
    torch.testing.assert_close(torch.cat([mean, variance]), expected)


def test_a_run_that_diverges_is_stopped_recorded_and_leaves_the_others_running() -> None:
    usual = {"name": "sgd", "lr": 0.1}
    huge = {"name": "sgd", "lr": 1e30}
    simulation = simulate(optimiser=[usual, huge], rounds=4, model="mlp")
    fine, broken = simulation.states
    assert (fine.status, fine.round) == ("finished", 4)
    assert broken.status == "diverged"
    assert broken.round < 4
    records = simulation.records  # type: ignore[attr-defined]
    broken_records = [record for record in records if record["run"] == "run1"]
    assert broken_records[-1]["status"] == "diverged"
    assert torch.isfinite(broken.server["x"]).all()
    assert torch.equal(fine.server["x"], final_x(optimiser=usual, rounds=4, model="mlp"))


def test_a_run_stops_at_its_target_or_when_patience_ends() -> None:
    target = simulate(rounds=50, target_accuracy=0.8).states[0]
    assert target.status == "target"
    assert target.round < 50
    idle = simulate(rounds=50, patience=3, optimiser={"name": "sgd", "lr": 1e-12}).states[0]
    assert (idle.status, idle.round) == ("patience", 4)


def test_clients_may_start_from_different_weights() -> None:
    still = {
        "rounds": 1,
        "optimiser": {"name": "sgd", "lr": 1e-12},
        "split": {"name": "quantity_skew", "beta": 2.0},
    }
    alike = simulate(initial="same", **still).states[0]
    torch.testing.assert_close(alike.server["x"], alike.initial)
    fresh = started(initial="different", **still)
    dx = torch.cat([draft.message["dx"] for draft in drafts_of(fresh)])
    starts = dx + fresh.states[0].initial
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(starts[a], starts[b])
    different = simulate(initial="different", **still).states[0]
    assert not any(torch.allclose(start, different.initial) for start in starts)
    n = torch.tensor([len(shard) for shard in different.train], dtype=torch.float32)[:, None]
    torch.testing.assert_close(different.server["x"], (n * starts).sum(0) / n.sum())


def started(**settings: Any) -> Simulation:
    """A simulation of one run before its first round."""
    (run,) = Study("small", **{**FAST, **settings}).runs()
    return Simulation([("a", run)], run.dataset.load())


def drafts_of(simulation: Simulation) -> list[Draft]:
    """What every client would send, without a word to the server."""
    state = simulation.states[0]
    return [draft_of(simulation, state, client) for client in range(state.run.clients)]


def planned(simulation: Simulation, client: int) -> Tensor:
    """The samples of a client's present round, in the order in which it sees them."""
    state = simulation.states[0]
    batches = draw_batches(state.run, client, state.round, state.train[client], simulation.trainer)
    assert isinstance(batches, ListedBatches)
    return torch.cat(list(batches.steps))


def test_the_weights_of_those_who_take_part_sum_to_one() -> None:
    settings = {
        "split": {"name": "quantity_skew", "beta": 2.0},
        "selection": {"name": "listed", "lists": [[0, 2]]},
    }
    simulation = started(**settings, rounds=1)
    state = simulation.states[0]
    dx = [draft.message["dx"][0] for draft in drafts_of(simulation)]
    n = [len(shard) for shard in state.train]
    list(simulation.play_round())
    mean = (n[0] * dx[0] + n[2] * dx[2]) / (n[0] + n[2])
    torch.testing.assert_close(state.server["x"], state.initial + mean)


def test_batches_are_drawn_anew_for_each_round_and_client() -> None:
    simulation = started(clients=2, batch_size=5)
    orders = [planned(simulation, client) for client in (0, 1)]
    ranks = [order.argsort().argsort() for order in orders]
    assert not torch.equal(*ranks)
    simulation.states[0].round = 1
    assert not torch.equal(orders[0], planned(simulation, 0))


def test_selections_and_the_models_dropout_are_drawn_anew_for_each_round() -> None:
    selection = {"name": "fraction", "c": 0.4}
    simulation = started(**OWN, selection=selection, clients=5, batch_size=None)
    state = simulation.states[0]
    selections = set()
    updates = []
    for round in range(6):
        state.round = round
        chosen, _ = choose(state)
        selections.add(tuple(chosen))
        updates.append(draft_of(simulation, state, 0).message["dx"])
    assert len(selections) > 1
    assert not torch.equal(updates[0], updates[1])


def test_each_row_of_a_block_has_its_own_rate_and_momentum() -> None:
    varied: Any = {
        "optimiser": [
            {"name": "momentum", "lr": 0.1, "momentum": 0.9},
            {"name": "momentum", "lr": 0.3, "momentum": 0.2},
        ],
        "schedule": {"name": "step", "factor": [0.5, 0.9], "every": 1},
    }
    settings: Any = {"rounds": 3, "batch_size": 8, "model": "mlp"}
    together = simulate(tiny_dataset(), form="vmap", **varied, **settings)
    assert len(together.states) == 4
    for state in together.states:
        methods: Any = {"optimiser": state.run.optimiser, "schedule": state.run.schedule}
        alone = final_x(tiny_dataset(), **methods, **settings)
        torch.testing.assert_close(state.server["x"], alone, rtol=1e-9, atol=1e-11)


def linear(x: Tensor, w: Tensor, features: int) -> Tensor:
    """What a linear model of three classes with the parameters w answers."""
    weight = w[: 3 * features].view(3, features)
    bias = w[3 * features :]
    return x @ weight.T + bias


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_local_metrics_are_those_of_the_clients_own_samples(form: str) -> None:
    settings: Any = {
        "split": {"name": "feature_noise", "sigma": 1.0},
        "optimiser": {"name": "sgd", "lr": 1e-12},
    }
    simulation = simulate(form=form, rounds=1, batch_size=7, **settings)
    state = simulation.states[0]
    (record,) = simulation.records  # type: ignore[attr-defined]
    for client in record["clients"]:
        for side, shards in (("train", state.train), ("test", state.test)):
            shard = shards[client["client"]]
            output = linear(simulation.samples.x[shard], state.server["x"], 4)
            y = simulation.samples.y[shard]
            loss = nn.functional.cross_entropy(output, y).item()
            accuracy = (output.argmax(1) == y).double().mean().item()
            assert client[f"{side}_loss"] == pytest.approx(loss, abs=1e-4)
            assert client[f"{side}_accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_only_those_who_take_part_are_sent_the_model() -> None:
    simulation = simulate(rounds=1, selection={"name": "listed", "lists": [[1]]})
    (record,) = simulation.records  # type: ignore[attr-defined]
    assert record["bytes_down"] == record["bytes_up"] == 4 * 15


def test_the_server_judges_updates_on_its_own_sample() -> None:
    simulation = started(server_samples=20)
    state = simulation.states[0]
    dx = torch.randn(2, 15, generator=torch.Generator().manual_seed(0))
    server_loss = simulation.server_data[state.id].losses(state.server_state)
    assert server_loss
    losses = server_loss(dx, 20)
    x = simulation.samples.x[state.sample]
    y = simulation.samples.y[state.sample]
    for row in range(2):
        output = linear(x, state.initial + dx[row], 4)
        torch.testing.assert_close(losses[row, 0], nn.functional.cross_entropy(output, y))
    assert len(state.sample) == 20
    clients_samples = torch.cat([*state.train, *state.test])
    assert not set(state.sample.tolist()) & set(clients_samples.tolist())


@dataclass(frozen=True)
class HeadStart(Algorithm):
    """Begins with a velocity of its own."""

    def begin(self, sent: Rows, mine: Rows) -> tuple[Tensor, Rows, Rows | None]:
        return sent["x"], mine, {"v": torch.full_like(sent["x"], 5.0)}


def test_an_algorithm_may_start_the_optimiser() -> None:
    settings = {
        "rounds": 1,
        "optimiser": {"name": "momentum", "lr": 0.1, "momentum": 0.5},
        "batch_size": None,
    }
    plain = final_x(tiny_dataset(), algorithm="fedavg", **settings)
    ahead = final_x(tiny_dataset(), algorithm=HeadStart(), **settings)
    torch.testing.assert_close(plain - ahead, torch.full_like(plain, 0.1 * 0.5 * 5.0))


@dataclass(frozen=True)
class Stepwise(Algorithm):
    """Scales each gradient by how many steps came before."""

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g * (1 + work.steps)


def test_the_steps_that_a_row_sees_do_not_depend_on_its_company() -> None:
    settings: Any = {
        "form": "loop",
        "algorithm": Stepwise(),
        "local_epochs": [3, 1, 2],
        "batch_size": [7, 5, 64],
    }
    alone = final_x(tiny_dataset(), at_once=1, **settings)
    together = final_x(tiny_dataset(), at_once=100, **settings)
    assert torch.equal(alone, together)


@dataclass(frozen=True)
class Base(Algorithm):
    factor: ClassVar[float] = 1.0

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return self.factor * g


@dataclass(frozen=True)
class Still(Base):
    factor: ClassVar[float] = 0.0


@dataclass(frozen=True)
class Halved(Algorithm):
    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        return {"dx": (w - sent["x"]) / 2}, mine


@dataclass(frozen=True)
class Both(Base, Halved):
    pass


def test_a_subclass_keeps_what_it_overrides() -> None:
    still = simulate(algorithm=Still()).states[0]
    assert torch.equal(still.server["x"], still.initial)
    full = simulate(algorithm=Base(), rounds=1).states[0]
    half = simulate(algorithm=Both(), rounds=1).states[0]
    full_step = full.server["x"] - full.initial
    torch.testing.assert_close(full_step / 2, half.server["x"] - half.initial)
    assert client_class(Algorithm.find("fedsgd")) is Algorithm


@dataclass(frozen=True)
class Sender(Algorithm):
    sends: ClassVar[tuple[str, ...]] = ("x", "c")


def test_runs_that_must_not_share_a_batch_do_not() -> None:
    for pair in (
        {"dataset": ["iris", "wine"]},
        {"optimiser": {"name": "sgd", "weight_decay": [None, 0.1]}},
        {"algorithm": {"name": "fedavg", "weights": ["samples", "uniform"]}},
        {"algorithm": ["fedavg", Sender()]},
    ):
        assert len(groups_of(Study(**{**FAST, **pair}))) == 2, pair


def test_frozen_parameters_and_instances_do_not_leak_between_runs() -> None:
    for path in ("own_code:HalfFrozen", "own_code:READY"):
        settings = {**OWN, "model": {"name": "module", "path": path}, "batch_size": 20}
        together = simulate(seed=[0, 1], **settings)
        for state in together.states:
            assert torch.equal(state.server["x"], final_x(seed=state.run.seed, **settings))


def test_full_gradients_leave_the_global_generator_alone() -> None:
    gradients = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        state = simulate(**OWN, algorithm=Memorious(), batch_size=20).states[0]
        gradients.append(state.method_memory[0]["full"])
        assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(*gradients)


@dataclass(frozen=True)
class Explosive(Algorithm):
    """Parameters that are finite with a loss that is not."""

    def aggregate(self, server, cohort: Cohort):  # type: ignore[no-untyped-def]
        return {"x": torch.full_like(server["x"], 3e38) * torch.arange(15).sub(7).sign()}


def test_an_infinite_loss_is_a_divergence_and_the_last_finite_model_is_kept() -> None:
    simulation = simulate(algorithm=Explosive(), rounds=3)
    state = simulation.states[0]
    (record,) = simulation.records  # type: ignore[attr-defined]
    assert (state.status, state.round) == ("diverged", 1)
    assert record["loss"] is record["accuracy"] is None
    assert torch.equal(state.server["x"], state.initial)


def test_a_run_that_diverges_keeps_finite_buffers() -> None:
    huge = {"name": "sgd", "lr": 1e19}
    state = simulate(**OWN, batch_size=20, optimiser=huge, rounds=3).states[0]
    assert state.status == "diverged"
    assert all(torch.isfinite(value).all() for value in state.buffers.values())


def test_runs_that_see_the_same_noise_share_one_copy_of_it() -> None:
    mus = {"name": "fedprox", "mu": [0.1, 0.2, 0.3]}
    simulation = simulate(split={"name": "feature_noise", "sigma": 1.0}, algorithm=mus, rounds=1)
    assert len(simulation.samples.x) == 2 * 120


def test_batch_norm_refuses_a_batch_of_one_before_anything_runs() -> None:
    with pytest.raises(StudyError, match="BatchNorm needs two samples in a batch"):
        simulate(**OWN, batch_size=1)


@dataclass(frozen=True)
class Careless(Algorithm):
    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g.sum()


@dataclass(frozen=True)
class Forgetful(Algorithm):
    def aggregate(self, server, cohort: Cohort):  # type: ignore[no-untyped-def]
        return cohort.combine("dx")


def test_hooks_that_return_the_wrong_thing_are_told_so() -> None:
    with pytest.raises(StudyError, match="correct must return one gradient per row"):
        simulate(algorithm=Careless())
    with pytest.raises(StudyError, match="aggregate must return the server's state"):
        simulate(algorithm=Forgetful())


def test_every_round_is_measured() -> None:
    simulation = simulate(rounds=1, clients=3, local_epochs=2, batch_size=10)
    (record,) = simulation.records  # type: ignore[attr-defined]
    size = 4 * (4 * 3 + 3)
    assert record["bytes_up"] == record["bytes_down"] == 3 * size
    assert 0 < record["accuracy"] <= 1
    assert record["loss"] > 0
    assert len(record["clients"]) == 3
    accuracies = [client["test_accuracy"] for client in record["clients"]]
    assert record["worst"] == min(accuracies)
    deviation = torch.tensor(accuracies).std(correction=0).item()
    assert record["spread"] == pytest.approx(deviation, abs=1e-6)
    for client in record["clients"]:
        assert client["steps"] == 2 * math.ceil(client["samples"] / 10)
        assert client["train_loss"] > 0


def test_step_decay_lowers_the_rate_from_round_to_round() -> None:
    vanishing = {"name": "step", "factor": 1e-9, "every": 1}
    tiny: Any = {"algorithm": "fedsgd", "clients": 1}
    once = final_x(tiny_dataset(), rounds=1, **tiny)
    twice = final_x(tiny_dataset(), rounds=2, schedule=vanishing, **tiny)
    torch.testing.assert_close(once, twice, rtol=1e-6, atol=1e-8)


def test_noisy_features_are_used_by_the_clients_and_not_by_the_global_test() -> None:
    noise = {"name": "feature_noise", "sigma": 3.0}
    clean = simulate(split="iid")
    noisy = simulate(split=noise)
    assert len(noisy.samples.x) == 2 * len(clean.samples.x)
    assert torch.equal(clean.samples.test_x, noisy.samples.test_x)
    mixed = simulate(split=["iid", noise])
    assert torch.equal(mixed.states[0].server["x"], clean.states[0].server["x"])
    assert torch.equal(mixed.states[1].server["x"], noisy.states[0].server["x"])


def test_more_clients_than_samples_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="500 clients cannot share 120 samples"):
        simulate(clients=500)


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_memory_full_gradients_and_personal_models_are_kept(form: str) -> None:
    lists = {"name": "listed", "lists": [[0, 1], [1, 2], [0, 1, 2]]}
    simulation = simulate(form=form, algorithm=Memorious(), rounds=3, selection=lists)
    state = simulation.states[0]
    assert state.server["turn"] == 3
    assert [state.method_memory[client]["turns"].item() for client in range(3)] == [2, 3, 2]
    for memory in state.method_memory.values():
        assert torch.equal(memory["born"][0], state.initial)
    impersonal = simulate(form=form, algorithm=Memorious(pull=0.0), rounds=3, selection=lists)
    assert torch.equal(state.server["x"], impersonal.states[0].server["x"])
    assert losses_on_local_tests(simulation) != losses_on_local_tests(impersonal)


def losses_on_local_tests(simulation: Any) -> list[float]:
    return [client["test_loss"] for client in simulation.records[-1]["clients"]]


def test_the_full_gradient_is_that_of_all_the_clients_samples() -> None:
    settings: Any = {"rounds": 1, "local_epochs": 2, "batch_size": 4}
    simulation = simulate(tiny_dataset(), algorithm=Memorious(), **settings)
    state = simulation.states[0]
    shard = state.train[1]
    x = state.initial.clone().requires_grad_()
    output = linear(simulation.samples.x[shard], x, 5)
    loss = nn.functional.cross_entropy(output, simulation.samples.y[shard])
    (gradient,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(state.method_memory[1]["full"][0], gradient)


@dataclass(frozen=True)
class FirstIsBroken(Combiner):
    """Refuses every reply, as a server does that cannot use them."""

    def __call__(self, rows: Tensor, cohort: Cohort) -> Tensor:
        return rows[0] * float("nan")


def test_memory_is_committed_only_when_the_server_took_the_reply() -> None:
    simulation = simulate(algorithm=Memorious(), combiner=FirstIsBroken(), rounds=2)
    assert simulation.states[0].status == "diverged"
    assert simulation.states[0].method_memory == {}
