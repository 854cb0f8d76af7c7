from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from playground import simulate, tiny_dataset
from torch import Tensor

from tacit.core.errors import DataError
from tacit.core.rows import Rows
from tacit.engines.simulation import Simulation, group_runs
from tacit.engines.study import Study
from tacit.federated.algorithm import Algorithm
from tacit.federated.cohort import Cohort
from tacit.federated.combine.combiner import Combiner
from tacit.training.trainer import Work

OWN = {
    "dataset": {"name": "function", "path": "own_code:make_data"},
    "model": {"name": "module", "path": "own_code:Net"},
}


def test_two_mu_in_one_batch_equal_each_run_alone_to_the_bit() -> None:
    settings = {"dataset": "digits", "model": "mlp", "local_epochs": [2, 1, 1], "rounds": 3}
    together = simulate(algorithm={"name": "fedprox", "mu": [0.01, 1]}, **settings)
    for state, mu in zip(together.states, (0.01, 1), strict=True):
        alone = simulate(algorithm={"name": "fedprox", "mu": mu}, **settings).states[0]
        assert torch.equal(state.server["x"], alone.server["x"])
    assert not torch.equal(*(state.server["x"] for state in together.states))


def test_runs_share_a_batch_when_only_float_settings_and_data_differ() -> None:
    study = Study(
        split=["iid", "quantity_skew"],
        algorithm=["fedavg", "fedsgd", {"name": "fedprox", "mu": [0.1, 1]}],
        optimiser=[{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 0.2}],
        seed=[0, 1],
    )
    groups = group_runs([(str(k), run) for k, run in enumerate(study.runs())])
    assert sorted(len(group) for group in groups) == [16, 16]
    other = Study(optimiser=["sgd", "momentum"], model=["linear", "mlp"])
    assert len(group_runs([(str(k), run) for k, run in enumerate(other.runs())])) == 4


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    one, other, third = (simulate(seed=seed).states[0].server["x"] for seed in (3, 3, 4))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = simulate(**OWN).states[0].server["x"]
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(one, simulate(**OWN).states[0].server["x"])


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_buffers_travel_float_ones_averaged_and_counters_copied(form: str) -> None:
    simulation = simulate(form=form, **OWN, clients=2, batch_size=16)
    buffers = simulation.states[0].buffers
    assert buffers["layers.1.num_batches_tracked"] > 0
    assert buffers["layers.1.running_mean"].abs().sum() > 0
    fresh = simulate(**OWN, clients=1, batch_size=16).states[0].buffers
    assert not torch.equal(fresh["layers.1.running_mean"], buffers["layers.1.running_mean"])


def test_averaged_buffers_are_the_weighted_mean_of_the_clients() -> None:
    study = Study(**OWN, clients=2, rounds=1, split={"name": "quantity_skew", "beta": 2.0})  # type: ignore[arg-type]
    run = study.runs()[0]
    simulation = Simulation([("a", run)], run.dataset.load())
    state = simulation.states[0]
    replies = [simulation._work([(state, k)])[0] for k in range(2)]
    list(simulation.play_round())
    n = torch.tensor([len(part) for part in state.train], dtype=torch.float32)
    rows = torch.cat([reply.message["buffers"] for reply in replies if reply])
    expected = (n[:, None] * rows).sum(0) / n.sum()
    found = torch.cat([state.buffers["layers.1.running_mean"], state.buffers["layers.1.running_var"]])
    torch.testing.assert_close(found, expected)


def test_a_run_that_diverges_is_stopped_recorded_and_leaves_the_others_running() -> None:
    simulation = simulate(optimiser=[{"name": "sgd", "lr": 0.1}, {"name": "sgd", "lr": 1e30}], rounds=4, model="mlp")
    fine, broken = simulation.states
    assert (fine.status, fine.round) == ("finished", 4)
    assert broken.status == "diverged"
    assert broken.round < 4
    last = [r for r in simulation.records if r["run"] == "run1"][-1]  # type: ignore[attr-defined]
    assert last["status"] == "diverged"
    assert torch.isfinite(broken.server["x"]).all()
    alone = simulate(optimiser={"name": "sgd", "lr": 0.1}, rounds=4, model="mlp").states[0]
    assert torch.equal(fine.server["x"], alone.server["x"])


def test_a_run_stops_at_its_target_or_when_patience_ends() -> None:
    target = simulate(rounds=50, target_accuracy=0.8).states[0]
    assert target.status == "target"
    assert target.round < 50
    idle = simulate(rounds=50, patience=3, optimiser={"name": "sgd", "lr": 1e-12}).states[0]
    assert (idle.status, idle.round) == ("patience", 4)


def test_clients_may_start_from_different_weights() -> None:
    same, different = (
        simulate(initial=start, rounds=1, optimiser={"name": "sgd", "lr": 1e-12}) for start in ("same", "different")
    )
    torch.testing.assert_close(same.states[0].server["x"], same.states[0].initial)
    mean = torch.stack(
        [different._own_start((state, k), state.initial[None])[0] for state in [fresh(different)] for k in range(3)]
    )
    sizes = torch.tensor([len(part) for part in different.states[0].train], dtype=torch.float32)[:, None]
    torch.testing.assert_close(different.states[0].server["x"], (sizes * mean).sum(0) / sizes.sum())


def fresh(simulation: Simulation):  # type: ignore[no-untyped-def]
    """The first run as it was before its first round."""
    state = simulation.states[0]
    state.round = 0
    return state


def test_every_round_is_measured() -> None:
    record = simulate(rounds=1, clients=3, local_epochs=2, batch_size=10).records[0]  # type: ignore[attr-defined]
    size = 4 * (4 * 3 + 3)
    assert record["bytes_up"] == record["bytes_down"] == 3 * size
    assert 0 < record["accuracy"] <= 1
    assert record["loss"] > 0
    assert len(record["clients"]) == 3
    accuracies = [client["test_accuracy"] for client in record["clients"]]
    assert record["worst"] == min(accuracies)
    assert record["spread"] == pytest.approx(torch.tensor(accuracies).std(correction=0).item(), abs=1e-6)
    for client in record["clients"]:
        assert client["steps"] == 2 * math.ceil(client["samples"] / 10)
        assert client["train_loss"] > 0


def test_step_decay_lowers_the_rate_from_round_to_round() -> None:
    tiny = {"algorithm": "fedsgd", "rounds": 1, "clients": 1}
    first = simulate(tiny_dataset(), **tiny)
    both = simulate(tiny_dataset(), schedule={"name": "step", "factor": 1e-9, "every": 1}, **{**tiny, "rounds": 2})
    torch.testing.assert_close(first.states[0].server["x"], both.states[0].server["x"], rtol=1e-6, atol=1e-8)


def test_noisy_features_are_used_by_the_clients_and_not_by_the_global_test() -> None:
    clean, noisy = (simulate(split=split) for split in ("iid", {"name": "feature_noise", "sigma": 3.0}))
    assert len(noisy.pool.x) == 2 * len(clean.pool.x)
    assert torch.equal(clean.pool.test_x, noisy.pool.test_x)
    mixed = simulate(split=["iid", {"name": "feature_noise", "sigma": 3.0}])
    assert torch.equal(mixed.states[0].server["x"], clean.states[0].server["x"])
    assert torch.equal(mixed.states[1].server["x"], noisy.states[0].server["x"])


def test_more_clients_than_samples_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="500 clients cannot share 120 samples"):
        simulate(clients=500)


@dataclass(frozen=True)
class Memorious(Algorithm, name="memorious"):
    """A test double in the registry's sense only: it keeps memory, wants the full gradient and personal models."""

    pull: float = 0.5
    sends: ClassVar[tuple[str, ...]] = ("x", "turn")
    needs_rows: ClassVar[bool] = True

    @property
    def needs_full_gradient(self) -> bool:
        return True

    def server_init(self, x: Tensor, population: int) -> dict[str, object]:
        return {"x": x, "turn": 0.0}

    def client_init(self, x: Tensor) -> Rows:
        return {"full": torch.zeros_like(x), "turns": torch.zeros_like(x[:, :1])}

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        assert work.full_gradient is not None
        return {"dx": w - sent["x"], "turns": mine["turns"]}, {"full": work.full_gradient, "turns": mine["turns"] + 1}

    def aggregate(self, server, cohort: Cohort):  # type: ignore[no-untyped-def]
        assert cohort.server_loss is None or cohort.server_loss(cohort.rows("dx")).shape == (len(cohort.ids), 1)
        assert (cohort.rows("turns") == server["turn"]).all()
        return {"x": server["x"] + cohort.combine("dx"), "turn": server["turn"] + 1}

    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        return sent["x"] - self.pull * mine["full"]


Algorithm.members.pop("memorious")  # the contract tests judge what ships


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_memory_full_gradients_and_personal_models_are_kept(form: str) -> None:
    simulation = simulate(form=form, algorithm=Memorious(), rounds=3, server_samples=20)
    state = simulation.states[0]
    assert state.server["turn"] == 3
    assert set(state.memory) == {0, 1, 2}
    for client, mine in state.memory.items():
        assert mine["turns"].item() == 3
        assert mine["full"].shape == (1, 15), client
    plain = simulate(form=form, algorithm="fedavg", rounds=3, server_samples=20)
    assert torch.equal(state.server["x"], plain.states[0].server["x"])
    mine, theirs = ([c["test_loss"] for c in one.records[-1]["clients"]] for one in (simulation, plain))  # type: ignore[attr-defined]
    assert mine != theirs


def test_the_full_gradient_is_that_of_all_the_clients_samples() -> None:
    simulation = simulate(tiny_dataset(), algorithm=Memorious(), rounds=1, local_epochs=2, batch_size=4)
    state = simulation.states[0]
    x = state.initial.clone().requires_grad_()
    weight, bias = x[:15].view(3, 5), x[15:]
    own = state.train[1]
    loss = torch.nn.functional.cross_entropy(simulation.pool.x[own] @ weight.T + bias, simulation.pool.y[own])
    torch.testing.assert_close(state.memory[1]["full"][0], torch.autograd.grad(loss, x)[0])


@dataclass(frozen=True)
class FirstIsBroken(Combiner):
    """Refuses every reply, as a server does that cannot use them."""

    def __call__(self, rows: Tensor, cohort: Cohort) -> Tensor:
        return rows[0] * float("nan")


def test_memory_is_committed_only_when_the_server_took_the_reply() -> None:
    simulation = simulate(algorithm=Memorious(), combiner=FirstIsBroken(), rounds=2)
    assert simulation.states[0].status == "diverged"
    assert simulation.states[0].memory == {}
