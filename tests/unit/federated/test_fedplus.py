"""Fed+'s proximal operators, its centres against a generic minimiser, and methods it contains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import Quadratic, play, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.algorithms.fedplus import FedPlus, centre, shrink
from tacit.federated.algorithms.fedprox import FedProx
from tacit.training.optimisers import SGD, Optimiser

D = torch.float64
KINDS = ["mean", "median", "geometric_median"]
kinds = pytest.mark.parametrize("kind", KINDS)


def models(count: int = 7, size: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, dtype=D, generator=torch.Generator().manual_seed(seed))


def phi(d: np.ndarray, kind: str) -> float:
    if kind == "mean":
        return float(d @ d) / 2
    return float(np.abs(d).sum()) if kind == "median" else float(np.sqrt(d @ d))


def shrunk(d: np.ndarray, rho: float, kind: str) -> np.ndarray:
    row = shrink(torch.from_numpy(d)[None], torch.tensor([[rho]], dtype=D), kind)[0]
    return np.asarray(row.numpy())


def envelope(d: np.ndarray, rho: float, kind: str) -> float:
    """Phi_rho(d) = min_v phi(v) + |d - v|^2 / (2 rho), at the v of the proximal operator."""
    v = shrunk(d, rho, kind)
    return phi(v, kind) + float(((d - v) ** 2).sum()) / (2 * rho)


@kinds
@given(st.floats(0.01, 5.0), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_the_proximal_operator_minimises_what_it_should(kind: str, rho: float, seed: int) -> None:
    d = 2 * models(1, 3, seed)[0].numpy()
    prox = shrunk(d, rho, kind)

    def cost(v: np.ndarray) -> float:
        return phi(v, kind) + float(((d - v) ** 2).sum()) / (2 * rho)

    directions = np.vstack([np.eye(3), -np.eye(3), -prox, d])
    tries = [d, 0 * d]
    for size in (1e-3, 1e-2, 0.3):
        tries += list(prox + size * directions)
    assert cost(prox) <= min(cost(v) for v in tries) + 1e-12


@kinds
@given(st.floats(0.0, 5.0), st.integers(0, 99))
@settings(deadline=None)
def test_the_proximal_operators_are_firmly_nonexpansive(kind: str, rho: float, seed: int) -> None:
    """|prox(a) - prox(b)|^2 <= (prox(a) - prox(b)) . (a - b)"""
    a, b = 2 * models(2, 4, seed)[:, None]
    column = torch.tensor([[rho]], dtype=D)
    gap = shrink(a, column, kind) - shrink(b, column, kind)
    assert (gap**2).sum() <= (gap * (a - b)).sum() + 1e-12


@kinds
@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("count", [5, 8])
def test_the_centres_agree_with_a_generic_minimiser(kind: str, rho: float, count: int) -> None:
    rows = models(count, 3, seed=count)
    ours = centre(rows, rho, kind).numpy()

    def cost(x: np.ndarray) -> float:
        return float(np.mean([envelope(row.numpy() - x, rho, kind) for row in rows]))

    minimise = scipy.optimize.minimize
    powell = {"xtol": 1e-10, "ftol": 1e-15}
    near = minimise(cost, rows.mean(0).numpy(), method="Powell", options=powell).x
    simplex = {"xatol": 1e-10, "fatol": 1e-16}
    theirs = minimise(cost, near, method="Nelder-Mead", options=simplex).x
    assert cost(ours) <= cost(theirs) + 1e-13
    if count % 2:  # of an even number, every point between the two middle ones may be a median
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@kinds
def test_at_the_centre_the_clients_pulls_cancel(kind: str) -> None:
    """wt = mean(w) - mean prox(w_k - wt), the rule of a fixed point, also with far outliers."""
    rows = torch.cat([models(9), 1e6 * models(2, seed=5)])
    x = centre(rows, 0.3, kind)
    pull = rows - x - shrink(rows - x, torch.tensor(0.3, dtype=D), kind)
    assert pull.mean(0).norm() < 1e-6 * (1e6 if kind == "mean" else 1)


@pytest.mark.parametrize("count", [7, 8])
def test_rho_to_zero_gives_the_medians_and_rho_to_infinity_the_mean(count: int) -> None:
    rows = models(count)
    usual = torch.from_numpy(np.median(rows.numpy(), axis=0))
    torch.testing.assert_close(centre(rows, 1e-9, "median"), usual, rtol=0, atol=1e-8)
    torch.testing.assert_close(centre(rows, 0.0, "median"), usual)
    nearly = centre(rows, 1e-7, "geometric_median")
    exactly = centre(rows, 0.0, "geometric_median")
    torch.testing.assert_close(nearly, exactly, rtol=0, atol=1e-6)
    for kind in KINDS:
        for rho in (1e3, float("inf")):
            torch.testing.assert_close(centre(rows, rho, kind), rows.mean(0))


@kinds
def test_with_lam_and_theta_one_the_mean_is_uniform_fedavg(kind: str) -> None:
    how: Any = {"steps": [3, 1, 2], "samples": [5, 1, 1], "rounds": 4}
    problem = Quadratic(models(3))
    plus = play(FedPlus(kind, mu=float("inf"), lam=1.0, theta=1.0), problem, **how)[-1]["x"]  # type: ignore[arg-type]
    torch.testing.assert_close(plus, play(FedAvg(weights="uniform"), problem, **how)[-1]["x"])


@kinds
def test_with_lam_one_and_z_at_the_centre_it_is_fedprox(kind: str) -> None:
    """theta = 1 / (1 + alpha nu) is FedProx's step, of rate nu / (1 + alpha nu) and mu = alpha."""
    alpha = 0.7
    nu = 0.1
    how: Any = {"steps": [4, 1, 2], "samples": [1, 1, 1], "rounds": 4}
    problem = Quadratic(models(3))
    rule = FedPlus(kind, mu=float("inf"), alpha=alpha, lam=1.0)  # type: ignore[arg-type]
    plus = play(rule, problem, optimiser=SGD(lr=nu), **how)[-1]["x"]
    prox = play(FedProx(alpha), problem, optimiser=SGD(lr=nu / (1 + alpha * nu)), **how)[-1]["x"]
    torch.testing.assert_close(plus, prox)


@kinds
def test_with_mu_zero_no_client_feels_the_others(kind: str) -> None:
    centres = models(3)
    moved = centres.clone()
    moved[1:] += 5
    how: Any = {"steps": [3] * 3, "samples": [1] * 3, "rounds": 6}
    rule = FedPlus(kind, mu=0.0)  # type: ignore[arg-type]
    before = play(rule, Quadratic(centres), **how)[-1]["mine"]["w"]
    after = play(rule, Quadratic(moved), **how)[-1]["mine"]["w"]
    torch.testing.assert_close(before[0], after[0], rtol=0, atol=1e-13)
    assert (before[1] - after[1]).norm() > 1


def test_with_mu_zero_and_theta_one_every_client_is_alone() -> None:
    study: Any = {"rounds": 3, "batch_size": 8}
    rule = {"name": "fedplus", "mu": 0, "theta": 1}
    plus = simulate(tiny_dataset(), algorithm=rule, **study).states[0]
    alone = simulate(tiny_dataset(), algorithm="local", **study).states[0]
    for client in range(3):
        torch.testing.assert_close(
            plus.method_memory[client]["w"], alone.method_memory[client]["w"]
        )


def test_a_client_that_is_not_sampled_keeps_its_model_and_still_counts() -> None:
    lists = {"name": "listed", "lists": [[0, 1, 2], [0]]}
    study: Any = {"selection": lists, "rounds": 2, "batch_size": 8}
    state = simulate(tiny_dataset(), algorithm="fedplus", **study).states[0]
    rows = torch.cat([state.method_memory[k]["w"] for k in range(3)])
    torch.testing.assert_close(state.server["models"], rows)
    torch.testing.assert_close(state.server["x"], rows.mean(0))


def test_personal_and_central_accuracy_are_both_recorded() -> None:
    split = {"name": "labels_per_party", "labels": 1}
    study: Any = {"split": split, "rounds": 8, "batch_size": 4, "local_epochs": 3}
    rule = {"name": "fedplus", "mu": 0.01, "alpha": 0.1}
    simulation: Any = simulate(tiny_dataset(120), algorithm=rule, **study)
    record = simulation.records[-1]
    assert record["local_accuracy"] > record["central_accuracy"]
    personal = sum(client["test_accuracy"] for client in record["clients"]) / 3
    central = sum(client["central_accuracy"] for client in record["clients"]) / 3
    assert personal == pytest.approx(record["local_accuracy"])
    assert central == pytest.approx(record["central_accuracy"])


def test_what_breaks_its_maths_is_refused() -> None:
    with pytest.raises(
        StudyError, match="fedplus mixes a gradient step with z, and adam would rescale both"
    ):
        FedPlus().check(Optimiser.build("adam"))
    numbers = {"mu": -1.0, "alpha": 0.0, "lam": 2.0, "theta": 0.0}
    for name, value in {**numbers, "weights": "samples"}.items():
        with pytest.raises(StudyError, match="fedplus"):
            FedPlus(**{name: value})  # type: ignore[arg-type]
