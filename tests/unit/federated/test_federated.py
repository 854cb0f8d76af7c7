"""FedAvg, FedSGD, FedProx, the mean and the selections against what their papers say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import Quadratic, a_cohort, play, simulate, tiny_dataset
from torch import nn

from tacit.core.errors import StudyError
from tacit.core.vectors import Layout
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.algorithms.fedprox import FedProx
from tacit.federated.algorithms.fedsgd import FedSGD
from tacit.federated.selection import Fraction, Listed
from tacit.training.optimisers import SGD, Optimiser

counts = st.lists(st.integers(1, 100), min_size=1, max_size=6)
D = torch.float64


def averaged(rows: torch.Tensor, samples: list[float], weights: str = "samples") -> torch.Tensor:
    algorithm = Algorithm.build({"name": "fedavg", "weights": weights})
    cohort = a_cohort({"dx": rows}, samples, torch.ones(len(rows), 1), algorithm)
    x: torch.Tensor = algorithm.aggregate({"x": torch.zeros_like(rows[0])}, cohort)["x"]
    return x


@given(counts, st.integers(0, 99))
def test_fedavg_stays_in_the_convex_hull_and_its_weights_are_scale_free(
    samples: list[int], seed: int
) -> None:
    rows = torch.randn(len(samples), 4, generator=torch.Generator().manual_seed(seed), dtype=D)
    mean = averaged(rows, samples)  # type: ignore[arg-type]
    assert (mean <= rows.max(0)[0] + 1e-12).all()
    assert (mean >= rows.min(0)[0] - 1e-12).all()
    torch.testing.assert_close(mean, averaged(rows, [7 * n for n in samples]))
    expected = (rows * torch.tensor(samples, dtype=D)[:, None]).sum(0) / sum(samples)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(averaged(rows, samples, "uniform"), rows.mean(0))  # type: ignore[arg-type]


def test_a_client_without_samples_changes_nothing() -> None:
    rows = torch.randn(3, 4, dtype=D)
    torch.testing.assert_close(averaged(rows, [2, 0, 5]), averaged(rows[[0, 2]], [2, 5]))


def test_one_client_alone_gets_its_own_model_back() -> None:
    simulation = simulate(
        tiny_dataset(), clients=1, rounds=1, local_epochs=2, batch_size=None, local_test=0.0
    )
    state = simulation.states[0]
    module = nn.Sequential(nn.Flatten(), nn.Linear(5, 3)).double()
    layout = Layout.of(module)
    layout.load(module, state.initial)
    for _ in range(2):
        loss = nn.functional.cross_entropy(module(simulation.samples.x), simulation.samples.y)
        grads = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, g in zip(module.parameters(), grads, strict=True):
                parameter -= 0.1 * g
    torch.testing.assert_close(state.server["x"], layout.flatten(module))


def test_one_full_batch_epoch_of_fedavg_is_fedsgd_is_gradient_descent_on_the_pooled_data() -> None:
    study = {"split": {"name": "quantity_skew", "beta": 1.0}, "rounds": 5, "local_test": 0.0}
    fedavg = simulate(tiny_dataset(), algorithm="fedavg", local_epochs=1, batch_size=None, **study)
    fedsgd = simulate(tiny_dataset(), algorithm="fedsgd", local_epochs=4, batch_size=3, **study)
    pooled = simulate(tiny_dataset(), algorithm="fedsgd", **{**study, "split": "iid", "clients": 1})
    torch.testing.assert_close(fedavg.states[0].server["x"], fedsgd.states[0].server["x"])
    torch.testing.assert_close(fedavg.states[0].server["x"], pooled.states[0].server["x"])


def test_fedsgd_refuses_an_optimiser_that_rescales_the_gradient() -> None:
    with pytest.raises(
        StudyError,
        match="fedsgd averages plain gradients, which adam would rescale; use optimiser: sgd",
    ):
        FedSGD().check(Optimiser.build("adam"))


@given(st.floats(0.0, 5.0), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(0, 20))
@settings(deadline=None, max_examples=25)
def test_fedavg_on_a_quadratic_has_the_closed_form_fixed_point(
    lr5: float, steps: list[int], seed: int
) -> None:
    """On F_k = |w - e_k|^2 / 2, tau_k steps keep (1 - lr)^tau_k of the gap.

    So e_k weighs p_k (1 - (1 - lr)^tau_k).
    """
    lr = 0.05 + lr5 / 10
    centres = torch.randn(len(steps), 2, dtype=D, generator=torch.Generator().manual_seed(seed))
    samples = [k + 1 for k in range(len(steps))]
    how: Any = {"steps": steps, "samples": samples, "rounds": 400, "optimiser": SGD(lr=lr)}
    last = play(FedAvg(), Quadratic(centres), **how)[-1]["x"]
    n = torch.tensor(samples, dtype=D)[:, None]
    tau = torch.tensor(steps, dtype=D)[:, None]
    pull = n * (1 - (1 - lr) ** tau)
    expected = (pull * centres).sum(0) / pull.sum()
    torch.testing.assert_close(last, expected, rtol=1e-6, atol=1e-8)


def test_the_first_step_of_fedprox_feels_no_pull() -> None:
    problem = Quadratic(torch.randn(3, 4, dtype=D))
    how: Any = {"steps": [1] * 3, "samples": [1] * 3, "rounds": 1}
    fedprox = play(FedProx(9.0), problem, **how)[-1]["x"]
    fedavg = play(FedAvg(), problem, **how)[-1]["x"]
    torch.testing.assert_close(fedprox, fedavg)


def test_fedprox_run_to_the_end_solves_the_proximal_problem() -> None:
    """(H + mu I) w = H e + mu x for each client, so with one client the next x is that w."""
    draw = torch.Generator().manual_seed(0)
    root = torch.randn(1, 3, 3, dtype=D, generator=draw)
    hessian = root @ root.mT + torch.eye(3, dtype=D)
    centre = torch.randn(1, 3, dtype=D, generator=draw)
    start = torch.randn(3, dtype=D, generator=draw)
    mu = 0.7
    how: Any = {"steps": [3000], "samples": [1], "rounds": 1, "optimiser": SGD(lr=0.05)}
    x = play(FedProx(mu), Quadratic(centre, hessian), start=start, **how)[-1]["x"]
    left = hessian[0] + mu * torch.eye(3, dtype=D)
    right = hessian[0] @ centre[0] + mu * start
    torch.testing.assert_close(x, torch.linalg.solve(left, right))


def test_a_larger_mu_keeps_clients_closer() -> None:
    problem = Quadratic(torch.randn(1, 4, dtype=D, generator=torch.Generator().manual_seed(0)))
    how: Any = {"steps": [500], "samples": [1], "rounds": 1, "optimiser": SGD(lr=0.05)}
    moved = []
    for mu in (0.0, 0.01, 0.1, 1.0, 10.0):
        x = play(FedProx(mu), problem, **how)[-1]["x"]
        moved.append(x.norm().item())
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 2 * moved[-1]


def test_a_negative_mu_is_refused() -> None:
    with pytest.raises(StudyError, match=r"fedprox\.mu: expected 0 or more"):
        FedProx(-1.0)


@given(st.floats(0.001, 1.0), st.integers(1, 200), st.integers(0, 99))
def test_a_fraction_of_the_clients_is_chosen(c: float, population: int, seed: int) -> None:
    chosen = Fraction(c).choose(0, population, np.random.default_rng(seed))
    assert len(chosen) == max(int(c * population + 1e-9), 1)
    assert chosen == sorted(set(chosen))
    assert 0 <= chosen[0] <= chosen[-1] < population


def test_the_fraction_does_not_fall_into_the_float_trap() -> None:
    assert len(Fraction(0.29).choose(0, 100, np.random.default_rng(0))) == 29


def test_lists_name_the_clients_of_each_round_in_turn() -> None:
    lists = Listed(((0, 2), (1,)))
    assert [lists.choose(t, 3, np.random.default_rng(0)) for t in range(3)] == [[0, 2], [1], [0, 2]]
    with pytest.raises(StudyError, match="expected clients from 0 to 1, got 2"):
        lists.check(2)


def test_only_the_chosen_clients_work() -> None:
    simulation: Any = simulate(selection={"name": "listed", "lists": [[0], [1, 2]]}, rounds=2)
    worked = []
    for record in simulation.records:
        busy = [figures for figures in record["clients"] if figures["steps"]]
        worked.append([figures["client"] for figures in busy])
    assert worked == [[0], [1, 2]]


def test_looking_at_single_messages_must_be_declared() -> None:
    cohort = a_cohort({"dx": torch.zeros(2, 3)}, [1, 1], torch.ones(2, 1), FedAvg())
    with pytest.raises(StudyError, match="declare needs_rows"):
        cohort.rows("dx")
    torch.testing.assert_close(cohort.total("dx"), torch.zeros(3))
