"""FedNAG and the FedOpt family against torch's own optimisers, and their invariants."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import Quadratic, a_cohort, play, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.algorithms.fednag import FedNag
from tacit.federated.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedOpt, FedYogi
from tacit.training.optimisers import SGD, Nesterov

D = torch.float64
rows = st.lists(st.floats(-2, 2), min_size=3, max_size=3)


def quadratic(clients: int, seed: int = 0) -> Quadratic:
    draw = torch.Generator().manual_seed(seed)
    root = torch.randn(clients, 3, 3, dtype=D, generator=draw)
    hessians = root @ root.mT / 3 + torch.eye(3, dtype=D) / 2
    return Quadratic(torch.randn(clients, 3, dtype=D, generator=draw), hessians)


def torch_nesterov(
    problem: Quadratic, taus: list[int], samples: list[int], rounds: int, lr: float
) -> torch.Tensor:
    """K torch optimisers, whose parameters and buffers are averaged after every round."""
    x = torch.zeros(3, dtype=D)
    buffer = torch.zeros(3, dtype=D)
    p = torch.tensor(samples, dtype=D) / sum(samples)
    for _ in range(rounds):
        ends = []
        buffers = []
        for k in range(len(taus)):
            w = x.clone().requires_grad_()
            rule = torch.optim.SGD([w], lr=lr, momentum=0.9, nesterov=True)
            rule.state[w]["momentum_buffer"] = buffer.clone()
            for _ in range(taus[k]):
                rule.zero_grad()
                gap = w - problem.centres[k]
                (gap @ problem.hessians[k] @ gap / 2).backward()  # type: ignore[index]
                rule.step()
            ends.append(w.detach())
            buffers.append(rule.state[w]["momentum_buffer"])
        x = (p[:, None] * torch.stack(ends)).sum(0)
        buffer = (p[:, None] * torch.stack(buffers)).sum(0)
    return x


@pytest.mark.parametrize("taus", [[3, 3, 3], [5, 1, 2]])
def test_fednag_is_torch_nesterov_with_averaged_buffers(taus: list[int]) -> None:
    samples = [3, 1, 2]
    lr = 0.05
    optimiser = Nesterov(lr=lr, momentum=0.9)
    how: Any = {"steps": taus, "samples": samples, "rounds": 12, "optimiser": optimiser}
    ours = play(FedNag(), quadratic(3), **how)[-1]["x"]
    theirs = torch_nesterov(quadratic(3), taus, samples, 12, lr)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_fednag_of_one_client_is_torch_nesterov() -> None:
    how: Any = {"steps": [4], "samples": [1], "rounds": 5, "optimiser": Nesterov(lr=0.05)}
    ours = play(FedNag(), quadratic(1), **how)[-1]["x"]
    theirs = torch_nesterov(quadratic(1), [20], [1], 1, 0.05)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_fednag_without_momentum_is_fedavg() -> None:
    how: Any = {"steps": [4, 1, 2], "samples": [3, 1, 2], "rounds": 5}
    still = Nesterov(lr=0.05, momentum=0.0)
    fednag = play(FedNag(), quadratic(3), optimiser=still, **how)[-1]["x"]
    fedavg = play(FedAvg(), quadratic(3), optimiser=SGD(lr=0.05), **how)[-1]["x"]
    torch.testing.assert_close(fednag, fedavg)


def test_fednag_with_one_full_step_is_centralised_nesterov() -> None:
    problem = quadratic(3)
    p = torch.tensor([3.0, 1, 2], dtype=D) / 6
    hessian = (p[:, None, None] * problem.hessians).sum(0)  # type: ignore[operator]
    pull = torch.einsum("k,kpq,kq->p", p, problem.hessians, problem.centres)
    centre = torch.linalg.solve(hessian, pull)
    pooled = Quadratic(centre[None], hessian[None])
    how: Any = {"steps": [1] * 3, "samples": [3, 1, 2], "rounds": 15}
    ours = play(FedNag(), problem, optimiser=Nesterov(lr=0.05), **how)[-1]["x"]
    theirs = torch_nesterov(pooled, [15], [1], 1, 0.05)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_fednag_of_identical_clients_is_fednag_of_one() -> None:
    single: Any = quadratic(1)
    fourfold = Quadratic(single.centres.repeat(4, 1), single.hessians.repeat(4, 1, 1))
    how: Any = {"rounds": 6, "optimiser": Nesterov(lr=0.05)}
    of_four = play(FedNag(), fourfold, steps=[3] * 4, samples=[1, 2, 3, 4], **how)[-1]["x"]
    of_one = play(FedNag(), single, steps=[3], samples=[1], **how)[-1]["x"]
    torch.testing.assert_close(of_four, of_one)


def test_fednag_refuses_an_optimiser_without_nesterov_momentum() -> None:
    with pytest.raises(StudyError, match=r"use optimiser: \{name: nesterov"):
        FedNag().check(SGD())


def drive(rule: Algorithm, updates: torch.Tensor, x: torch.Tensor) -> list[dict[str, Any]]:
    """The server's states, given the mean update of each round."""
    server = dict(rule.server_init(x, 1))
    states = [server]
    for d in updates:
        cohort = a_cohort({"dx": d[None]}, [1], torch.ones(1, 1), rule)
        server = dict(rule.aggregate(server, cohort))
        states.append(server)
    return states


def torch_steps(optimiser: Any, w: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    for d in updates:
        w.grad = -d
        optimiser.step()
    return w.detach()


def some_updates(rounds: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(4)
    updates = torch.randn(rounds, 5, dtype=D, generator=draw)
    return updates, torch.randn(5, dtype=D, generator=draw)


def test_fedadam_with_hats_is_torch_adam() -> None:
    updates, x = some_updates()
    rule = FedAdam(
        server_lr=0.03, beta1=0.8, beta2=0.95, tau=1e-4, v_init=0.0, bias_correction="hat"
    )
    w = x.clone().requires_grad_()
    theirs = torch_steps(torch.optim.Adam([w], lr=0.03, betas=(0.8, 0.95), eps=1e-4), w, updates)
    torch.testing.assert_close(drive(rule, updates, x)[-1]["x"], theirs, rtol=1e-12, atol=1e-12)


def test_fedadagrad_is_torch_adagrad() -> None:
    updates, x = some_updates()
    w = x.clone().requires_grad_()
    adagrad = torch.optim.Adagrad([w], lr=0.2, initial_accumulator_value=0.05**2, eps=0.05)
    theirs = torch_steps(adagrad, w, updates)
    ours = drive(FedAdagrad(server_lr=0.2, tau=0.05), updates, x)[-1]["x"]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_fedavgm_is_torch_sgd_with_momentum() -> None:
    updates, x = some_updates()
    w = x.clone().requires_grad_()
    theirs = torch_steps(torch.optim.SGD([w], lr=0.5, momentum=0.9), w, updates)
    ours = drive(FedAvgM(server_lr=0.5), updates, x)[-1]["x"]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_fedadam_and_fedyogi_follow_algorithm_2_by_hand() -> None:
    """Two rounds with d = 2 then -1, beta1 0.5, beta2 0.75, tau 0.1 and eta 1.

    So m = 1, 0; v starts at 0.01.
    """
    updates = torch.tensor([[2.0], [-1.0]], dtype=D)
    x = torch.zeros(1, dtype=D)
    settings: Any = {"server_lr": 1.0, "beta1": 0.5, "beta2": 0.75, "tau": 0.1}
    adam = drive(FedAdam(**settings), updates, x)
    yogi = drive(FedYogi(**settings), updates, x)
    v1 = 0.75 * 0.01 + 0.25 * 4
    torch.testing.assert_close(adam[1]["v"].item(), v1)
    torch.testing.assert_close(adam[1]["x"].item(), 1 / (v1**0.5 + 0.1))
    torch.testing.assert_close(adam[2]["v"].item(), 0.75 * v1 + 0.25)
    torch.testing.assert_close(adam[2]["x"].item(), 1 / (v1**0.5 + 0.1))  # m is 0.5 - 0.5
    torch.testing.assert_close(yogi[1]["v"].item(), 0.01 + 0.25 * 4)  # v < d^2: it grows
    torch.testing.assert_close(yogi[2]["v"].item(), 1.01 - 0.25)  # v > d^2: it shrinks


def test_the_two_bias_corrections_differ_only_in_where_tau_stands() -> None:
    """lr_scaled is m / (sqrt(v) + tau) times eta sqrt(1 - b2^t) / (1 - b1^t).

    With tau -> 0 it is the hat form.
    """
    updates, x = some_updates(6)
    for tau, equal in ((1e-12, True), (0.5, False)):
        lr_scaled = FedAdam(tau=tau, v_init=0.0, bias_correction="lr_scaled")
        hat = FedAdam(tau=tau, v_init=0.0, bias_correction="hat")
        scaled_x = drive(lr_scaled, updates, x)[-1]["x"]
        hat_x = drive(hat, updates, x)[-1]["x"]
        assert torch.allclose(scaled_x, hat_x, rtol=1e-6, atol=0) == equal
    d = updates[:1]
    rule = FedAdam(
        server_lr=0.3, tau=0.5, v_init=0.0, bias_correction="lr_scaled", beta1=0.9, beta2=0.99
    )
    step = drive(rule, d, x)[-1]["x"] - x
    expected = 0.3 * (0.01**0.5 / 0.1) * 0.1 * d[0] / ((0.01 * d[0] ** 2).sqrt() + 0.5)
    torch.testing.assert_close(step, expected)


@given(st.lists(rows, min_size=1, max_size=8))
@settings(deadline=None)
def test_adagrads_v_never_falls_and_yogis_moves_by_at_most_its_share_of_d_squared(
    updates: list[list[float]],
) -> None:
    d = torch.tensor(updates, dtype=D)
    x = torch.zeros(3, dtype=D)
    for before, after in itertools.pairwise(drive(FedAdagrad(), d, x)):
        assert (after["v"] >= before["v"]).all()
    yogi = itertools.pairwise(drive(FedYogi(), d, x))
    for (before, after), step in zip(yogi, d, strict=True):
        moved = (after["v"] - before["v"]).abs()
        assert (moved <= (1 - 0.99) * step**2 + 1e-15).all()


@pytest.mark.parametrize("rule", [FedAdagrad, FedYogi])
def test_no_update_leaves_the_model_where_it_was(rule: type[FedOpt]) -> None:
    x = torch.ones(3, dtype=D)
    for state in drive(rule(beta1=0.0), torch.zeros(4, 3, dtype=D), x):
        assert torch.equal(state["x"], x)


def test_with_a_huge_tau_the_step_is_c_times_d() -> None:
    updates, x = some_updates(1)
    c = 0.7
    tau = 1e6
    rules = [
        FedAdagrad(server_lr=2 * c * tau, beta1=0.0, tau=tau),
        FedYogi(server_lr=2 * c * tau, beta1=0.0, tau=tau),
        FedAdam(server_lr=c * tau, beta1=0.0, tau=tau, v_init=0.0),
    ]
    for rule in rules:
        step = drive(rule, updates, x)[-1]["x"] - x
        torch.testing.assert_close(step, c * updates[0], rtol=1e-5, atol=0)


def test_v_starts_at_tau_squared_and_all_clients_count_the_same() -> None:
    rule = FedAdam(tau=0.3)
    v = rule.server_init(torch.zeros(2, dtype=D), 3)["v"]
    assert torch.equal(v, torch.full((2,), 0.09, dtype=D))
    d = torch.tensor([[1.0], [4.0]], dtype=D)
    cohort = a_cohort({"dx": d}, [99, 1], torch.ones(2, 1), rule)
    state = rule.aggregate(rule.server_init(d[0], 2), cohort)
    torch.testing.assert_close(state["m"].item(), 0.1 * 2.5)
    by_samples = FedAdam(tau=0.3, weights="samples")
    cohort = a_cohort({"dx": d}, [3, 1], torch.ones(2, 1), by_samples)
    state = by_samples.aggregate(by_samples.server_init(d[0], 2), cohort)
    torch.testing.assert_close(state["m"].item(), 0.1 * 1.75)


def test_the_family_shares_its_clients_with_fedavg() -> None:
    """Round one starts from one model, so all clients send the same; only the server differs."""
    study: Any = {"rounds": 1, "algorithm": ["fedadam", "fedyogi", "fedadagrad"]}
    adam, yogi, adagrad = (state.server["m"] for state in simulate(tiny_dataset(), **study).states)
    torch.testing.assert_close(adam, yogi)
    torch.testing.assert_close(adam / 0.1, adagrad)  # 1 - beta1 is 0.1, and 1 for adagrad


@pytest.mark.parametrize(
    "wrong", [{"beta1": 1.0}, {"beta2": -0.1}, {"tau": 0.0}, {"server_lr": 0.0}, {"v_init": -1.0}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(StudyError, match=f"fedadam.{next(iter(wrong))}: expected"):
        FedAdam(**wrong)  # type: ignore[arg-type]
