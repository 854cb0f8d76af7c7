"""SCAFFOLD's invariants. Its control variates are what most implementations get wrong."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import Quadratic, play, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.algorithms.fednova import FedNova
from tacit.federated.algorithms.fedsgd import FedSGD
from tacit.federated.algorithms.scaffold import Scaffold
from tacit.training.optimisers import SGD, Optimiser

D = torch.float64
OPTIONS = pytest.mark.parametrize("option", ["I", "II"])


def least_squares(
    sizes: tuple[int, ...] = (30, 12, 60), features: int = 4
) -> tuple[Quadratic, torch.Tensor]:
    """F_k = |A_k w - b_k|^2 / (2 n_k), each client with its own truth; and the Hessians."""
    draw = torch.Generator().manual_seed(3)
    hessians = []
    centres = []
    for k, n in enumerate(sizes):
        a = 2 * torch.randn(n, features, dtype=D, generator=draw) * (1 + 0.2 * k)
        truth = torch.randn(features, dtype=D, generator=draw)
        noise = torch.randn(n, dtype=D, generator=draw)
        b = a @ truth + 0.1 * noise
        hessians.append(a.T @ a / n)
        centres.append(torch.linalg.solve(a.T @ a, a.T @ b))
    return Quadratic(torch.stack(centres), torch.stack(hessians)), torch.stack(hessians)


def weighted_optimum(
    problem: Quadratic, weights: torch.Tensor, matrices: torch.Tensor
) -> torch.Tensor:
    """The x at which sum_k weight_k M_k (e_k - x) = 0."""
    m = weights[:, None, None] * matrices
    return torch.linalg.solve(m.sum(0), (m @ problem.centres[:, :, None]).sum(0))[:, 0]


@pytest.mark.parametrize("lr", [0.05, 0.005])
def test_least_squares_with_tau_8_1_3_ends_where_each_method_says(lr: float) -> None:
    """Each method against its closed-form fixed point, and that against the method's own optimum.

    tau steps of a client keep (I - lr H_k)^tau_k of its gap, so FedAvg stands still where the pulls
    p_k (I - (I - lr H_k)^tau_k)(e_k - x) cancel; FedNova divides them by tau_k; SCAFFOLD has no
    bias.
    """
    problem, hessians = least_squares()
    taus = [8, 1, 3]
    samples = [30.0, 12.0, 60.0]
    p = torch.tensor(samples, dtype=D) / sum(samples)
    tau = torch.tensor(taus, dtype=D)
    eye = torch.eye(4, dtype=D)
    remaining = [
        torch.matrix_power(eye - lr * h, tau_k) for h, tau_k in zip(hessians, taus, strict=True)
    ]
    pulls = eye - torch.stack(remaining)
    pooled = weighted_optimum(problem, p, hessians)
    uniform = weighted_optimum(problem, torch.ones(3, dtype=D), hessians)
    rounds = int(7 / lr)

    def end(algorithm: Algorithm) -> torch.Tensor:
        how: Any = {"steps": taus, "samples": samples, "rounds": rounds, "optimiser": SGD(lr=lr)}
        x: torch.Tensor = play(algorithm, problem, **how)[-1]["x"]
        return x

    fedavg = end(FedAvg())
    expected = weighted_optimum(problem, p, pulls)
    torch.testing.assert_close(fedavg, expected, rtol=1e-10, atol=1e-12)
    fednova = end(FedNova())
    expected = weighted_optimum(problem, p / tau, pulls)
    torch.testing.assert_close(fednova, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(end(Scaffold()), uniform, rtol=0, atol=1e-12)
    torch.testing.assert_close(end(Scaffold(option="I")), uniform, rtol=0, atol=1e-12)
    torch.testing.assert_close(end(Scaffold(weights="samples")), pooled, rtol=0, atol=1e-12)
    assert (fedavg - pooled).norm() > 0.2  # O(1), whatever the rate
    assert (fednova - pooled).norm() < 12 * lr  # O(eta)


@OPTIONS
def test_one_client_alone_is_sgd(option: Any) -> None:
    problem = Quadratic(torch.randn(1, 3, dtype=D))
    how: Any = {"steps": [4], "samples": [2], "rounds": 5}
    scaffold = play(Scaffold(option), problem, **how)[-1]["x"]
    fedavg = play(FedAvg(), problem, **how)[-1]["x"]
    torch.testing.assert_close(scaffold, fedavg)


@OPTIONS
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 50))
@settings(deadline=None, max_examples=20)
def test_c_is_the_mean_of_the_clients_control_variates(
    option: Any, taus: list[int], seed: int
) -> None:
    centres = torch.randn(len(taus), 3, dtype=D, generator=torch.Generator().manual_seed(seed))
    samples = list(range(1, len(taus) + 1))
    for weights in ("uniform", "samples"):
        rule = Scaffold(option, weights=weights)  # type: ignore[arg-type]
        states = play(rule, Quadratic(centres), steps=taus, samples=samples, rounds=4)
        n = torch.tensor(samples, dtype=D)[:, None]
        p = n if weights == "samples" else torch.ones_like(n)
        assert states[0]["c"].eq(0).all()
        for state in states[1:]:
            torch.testing.assert_close(state["c"], (p * state["mine"]["c"]).sum(0) / p.sum())


def test_one_full_step_is_gradient_descent_on_the_mean_over_clients_whatever_the_option() -> None:
    problem, _ = least_squares()
    how: Any = {"steps": [1] * 3, "samples": [9, 1, 5], "rounds": 6, "optimiser": SGD(lr=0.05)}
    descent = play(FedSGD(weights="uniform"), problem, **how)[-1]["x"]
    torch.testing.assert_close(play(Scaffold("I"), problem, **how)[-1]["x"], descent)
    torch.testing.assert_close(play(Scaffold("II"), problem, **how)[-1]["x"], descent)


@OPTIONS
def test_the_minimiser_of_the_uniform_mean_is_a_fixed_point_for_any_tau(option: Any) -> None:
    problem, hessians = least_squares()
    best = weighted_optimum(problem, torch.ones(3, dtype=D), hessians)
    gradients = torch.einsum("kpq,kq->kp", hessians, best - problem.centres)
    assert gradients.norm() > 1
    torch.testing.assert_close(gradients.sum(0), torch.zeros(4, dtype=D))
    rule = Prepared(option, gradients)
    how: Any = {"samples": [1] * 3, "rounds": 5, "start": best, "optimiser": SGD(lr=0.05)}
    for taus in ([1, 1, 1], [8, 1, 3], [2, 9, 30]):
        moved = play(rule, problem, steps=taus, **how)[-1]["x"]
        torch.testing.assert_close(moved, best, rtol=0, atol=1e-12)


class Prepared(Scaffold):
    """SCAFFOLD whose control variates are already what they should be."""

    variates: ClassVar[torch.Tensor]

    def __init__(self, option: Any, variates: torch.Tensor) -> None:
        super().__init__(option)
        Prepared.variates = variates

    def client_init(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"c": Prepared.variates.clone()}


def test_clients_that_are_not_sampled_keep_their_variate_and_c_stays_the_mean_of_all() -> None:
    lists = {"name": "listed", "lists": [[0, 1], [1, 2], [0]]}
    for weights in ("uniform", "samples"):
        study: Any = {
            "algorithm": {"name": "scaffold", "weights": weights},
            "split": {"name": "quantity_skew", "beta": 2.0},
            "batch_size": 8,
            "selection": lists,
        }
        two = simulate(tiny_dataset(), rounds=2, **study).states[0]
        three = simulate(tiny_dataset(), rounds=3, **study).states[0]
        assert torch.equal(two.method_memory[1]["c"], three.method_memory[1]["c"])
        assert torch.equal(two.method_memory[2]["c"], three.method_memory[2]["c"])
        assert not torch.equal(two.method_memory[0]["c"], three.method_memory[0]["c"])
        n = torch.tensor([len(shard) for shard in three.train], dtype=D)[:, None]
        p = n / n.sum() if weights == "samples" else torch.full_like(n, 1 / 3)
        rows = torch.cat([three.method_memory[k]["c"] for k in range(3)])
        torch.testing.assert_close(three.server["c"], (p * rows).sum(0))


def test_a_lost_reply_leaves_c_the_mean_of_the_control_variates() -> None:
    study: Any = {"algorithm": "scaffold", "rounds": 6, "dropout": 0.5, "batch_size": 8}
    state = simulate(tiny_dataset(), **study).states[0]
    c_k = [
        rows["c"][0] for rows in state.method_memory.values()
    ]  # zero for clients without a memory
    torch.testing.assert_close(state.server["c"], sum(c_k) / 3)


@pytest.mark.parametrize("name", ["adam", "momentum", "nesterov", "adagrad"])
def test_option_two_refuses_optimisers_that_rescale_the_gradient(name: str) -> None:
    with pytest.raises(StudyError, match="option II computes the mean gradient from the update"):
        Scaffold().check(Optimiser.build(name))
    Scaffold("I").check(Optimiser.build(name))


def test_the_server_learning_rate_stretches_the_step() -> None:
    problem = Quadratic(torch.randn(3, 4, dtype=D))
    how: Any = {"steps": [2, 3, 1], "samples": [1] * 3, "rounds": 1}
    full = play(Scaffold(server_lr=1.0), problem, **how)[-1]["x"]
    half = play(Scaffold(server_lr=0.5), problem, **how)[-1]["x"]
    torch.testing.assert_close(half, full / 2)
