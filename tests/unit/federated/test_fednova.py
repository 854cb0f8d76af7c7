"""FedNova's invariants: what normalised averaging must keep, whatever the clients do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import Quadratic, a_cohort, draft_of, play, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.core.rows import columns
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.algorithms.fednova import FedNova, accumulated
from tacit.training.batches import ListedBatches, Samples
from tacit.training.optimisers import SGD, Momentum, Nesterov, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Work

D = torch.float64
OPTIMISERS = [SGD(lr=0.05), Momentum(lr=0.05, momentum=0.7), Nesterov(lr=0.05, momentum=0.6)]


def some_problem(clients: int, seed: int = 0) -> Quadratic:
    draw = torch.Generator().manual_seed(seed)
    root = torch.randn(clients, 3, 3, dtype=D, generator=draw)
    hessians = root @ root.mT / 3 + torch.eye(3, dtype=D) / 2
    return Quadratic(torch.randn(clients, 3, dtype=D, generator=draw), hessians)


def last(algorithm: Algorithm, problem: Quadratic, **how: Any) -> torch.Tensor:
    x: torch.Tensor = play(algorithm, problem, **how)[-1]["x"]
    return x


def work_of(steps: int, optimiser: Optimiser) -> Work:
    """What a client that has taken so many steps knows of its work."""
    x = torch.zeros(1, 1, dtype=D)
    who = torch.zeros(1, dtype=torch.int64)
    trainer = RowTrainer(None, Samples(who, who), gradient=Quadratic(x))
    rule: Any = columns([optimiser], type(optimiser), x)
    return trainer.train(x, [ListedBatches([who] * steps)], optimiser=rule, seeds=[0]).work


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda o: o.name)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_equal_tau_is_fedavg(optimiser: Optimiser, steps: int) -> None:
    how = {"steps": [steps] * 3, "samples": [3, 1, 2], "rounds": 3, "optimiser": optimiser}
    nova = last(FedNova(), some_problem(3), **how)
    torch.testing.assert_close(nova, last(FedAvg(), some_problem(3), **how))


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda o: o.name)
def test_one_client_alone_gets_its_own_model_back(optimiser: Optimiser) -> None:
    how = {"steps": [5], "samples": [2], "rounds": 2, "optimiser": optimiser}
    nova = last(FedNova(), some_problem(1), **how)
    torch.testing.assert_close(nova, last(FedAvg(), some_problem(1), **how))


def test_with_a_proximal_term_one_client_also_gets_its_own_model_back() -> None:
    how = {"steps": [20], "samples": [2], "rounds": 2, "optimiser": SGD(lr=0.05)}
    prox = Algorithm.build({"name": "fedprox", "mu": 1.0})
    nova = last(FedNova(mu=1.0), some_problem(1), **how)
    torch.testing.assert_close(nova, last(prox, some_problem(1), **how))


def test_the_authors_tau_eff_scales_a_lone_proximal_client_by_up_to_1_56() -> None:
    """tau / a at eta mu = 0.05 and tau = 20: 20 * 0.05 / (1 - 0.95^20)."""
    how = {"steps": [20], "samples": [2], "rounds": 1, "optimiser": SGD(lr=0.05)}
    exact = last(FedNova(mu=1.0, tau_eff="exact"), some_problem(1), **how)
    official = last(FedNova(mu=1.0, tau_eff="steps"), some_problem(1), **how)
    factor = 20 * 0.05 / (1 - 0.95**20)
    torch.testing.assert_close(official / exact, torch.full((3,), factor, dtype=D))
    assert factor == pytest.approx(1.56, abs=0.005)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(2, 7), st.integers(0, 99))
def test_sgd_is_invariant_to_counting_tau_in_another_unit(
    taus: list[int], c: int, seed: int
) -> None:
    """Given the same local models, tau -> c tau changes nothing: only ratios of tau matter."""
    dx = torch.randn(len(taus), 4, dtype=D, generator=torch.Generator().manual_seed(seed))
    tau = torch.tensor(taus, dtype=D)[:, None]
    samples = list(range(1, len(taus) + 1))

    def next_x(a: torch.Tensor) -> torch.Tensor:
        cohort = a_cohort({"dx": dx / a, "a": a}, samples, tau, FedNova())
        x: torch.Tensor = FedNova().aggregate({"x": dx[0]}, cohort)["x"]
        return x

    torch.testing.assert_close(next_x(tau), next_x(c * tau))


@pytest.mark.parametrize("optimiser", [SGD, Momentum], ids=lambda o: o.name)
def test_given_the_local_models_eta_does_not_matter(optimiser: type[Optimiser]) -> None:
    w = torch.randn(1, 4, dtype=D)
    sent = {"x": torch.zeros(1, 4, dtype=D)}
    view = columns([FedNova()], FedNova, w)
    slow, _ = view.finish(w, sent, {}, work_of(6, optimiser(lr=0.01)))
    fast, _ = view.finish(w, sent, {}, work_of(6, optimiser(lr=0.5)))
    torch.testing.assert_close(slow, fast)


@given(st.integers(1, 40), st.floats(0.0, 0.95), st.floats(1e-7, 0.9))
@settings(deadline=None)
def test_a_is_what_a_constant_gradient_adds_up_to(steps: int, rho: float, pull: float) -> None:
    """Each closed form against the optimiser itself, stepped under a gradient of one."""
    lr = 0.1
    cases = [
        (SGD(lr=lr), pull / lr),
        (Momentum(lr=lr, momentum=rho), 0.0),
        (Nesterov(lr, None, rho), 0.0),
    ]
    for optimiser, mu in cases:
        work = work_of(steps, optimiser)
        w = torch.zeros(1, 1, dtype=D)
        state = work.optimiser.init(w)
        for _ in range(steps):
            w, state = work.optimiser.update(w, 1 + mu * w, state)
        a = accumulated(work, torch.tensor([[mu]], dtype=D))
        torch.testing.assert_close(a, -w / lr, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lr", [0.05, 0.3])
def test_on_a_quadratic_the_fixed_point_is_the_closed_form(lr: float) -> None:
    """On F_k = |w - e_k|^2 / 2 the centre e_k weighs p_k (1 - (1 - eta)^tau_k) / tau_k."""
    taus = [8, 1, 3]
    samples = [1, 2, 3]
    centres = torch.randn(3, 2, dtype=D, generator=torch.Generator().manual_seed(0))
    how = {"steps": taus, "samples": samples, "rounds": 800, "optimiser": SGD(lr=lr)}
    x = last(FedNova(), Quadratic(centres), **how)
    n = torch.tensor(samples, dtype=D)[:, None]
    tau = torch.tensor(taus, dtype=D)[:, None]
    pull = n * (1 - (1 - lr) ** tau) / tau
    torch.testing.assert_close(x, (pull * centres).sum(0) / pull.sum())


def test_normalise_epochs_divides_by_the_epochs_asked_for() -> None:
    run = {"local_epochs": [5, 1, 2], "batch_size": 6, "rounds": 1, "optimiser": "adam"}
    nova = {"name": "fednova", "normalise": "epochs"}
    normalised = simulate(tiny_dataset(), algorithm=nova, **run).states[0]
    plain = simulate(tiny_dataset(), algorithm="fedavg", **run)
    fresh = simulate(tiny_dataset(), algorithm="fedavg", **{**run, "rounds": 1})
    state = fresh.states[0]
    state.server = {"x": state.initial}
    state.round = 0
    dx = torch.cat([draft_of(fresh, state, k).message["dx"] for k in range(3)])
    epochs = torch.tensor([5.0, 1, 2], dtype=D)[:, None]
    p = torch.full((3, 1), 1 / 3, dtype=D)
    step = (p * epochs).sum() * (p * dx / epochs).sum(0)
    torch.testing.assert_close(normalised.server["x"], state.initial + step)
    assert not torch.allclose(normalised.server["x"], plain.states[0].server["x"])


def test_adam_is_refused_with_a_reason_unless_steps_or_epochs_are_asked_for() -> None:
    adam = Optimiser.build("adam")
    with pytest.raises(
        StudyError, match="under adam these weights depend on the gradients; use sgd, momentum"
    ):
        FedNova().check(adam)
    FedNova(normalise="steps").check(adam)
    FedNova(normalise="epochs").check(adam)
    with pytest.raises(StudyError, match="momentum's gradients only without a proximal term"):
        FedNova(mu=0.1).check(Momentum())


def test_a_larger_mu_keeps_clients_closer() -> None:
    problem = some_problem(2)
    how = {"steps": [30, 30], "samples": [1, 1], "rounds": 1, "optimiser": SGD(lr=0.05)}
    moved = [last(FedNova(mu=mu), problem, **how).norm().item() for mu in (0.0, 0.1, 1.0, 10.0)]
    assert moved == sorted(moved, reverse=True)
