"""The robust rules: what their papers promise, and what floating point does to them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import a_cohort

from tacit.core.errors import StudyError
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.combine import chunks
from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.krum import krum_scores
from tacit.federated.combine.location import spatial_huber_location

D = torch.float64
seeds = st.integers(0, 9999)


def draw(count: int, size: int = 6, seed: int = 0, dtype: torch.dtype = D) -> torch.Tensor:
    return torch.randn(count, size, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def combine(spec: Any, rows: torch.Tensor, **cohort: Any) -> torch.Tensor:
    plain = a_cohort({"dx": rows}, [1.0] * len(rows), torch.ones(len(rows), 1), FedAvg())
    return replace(plain, combiner=Combiner.build(spec), **cohort).combine("dx")


def reference_scores(rows: torch.Tensor, f: int) -> np.ndarray:
    x = rows.double().numpy()
    squares = ((x[:, None] - x) ** 2).sum(2)
    np.fill_diagonal(squares, np.inf)
    return np.sort(squares, axis=1)[:, : len(x) - f - 2].sum(1)


def orthogonal(size: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(draw(size, size, seed))[0]


# Krum


@given(st.integers(0, 3), st.integers(0, 6), seeds)
@settings(deadline=None)
def test_krum_returns_the_input_row_with_the_least_score(f: int, more: int, seed: int) -> None:
    rows = draw(2 * f + 3 + more, seed=seed)
    np.testing.assert_allclose(krum_scores(rows, f), reference_scores(rows, f), rtol=1e-9)
    best = reference_scores(rows, f).argmin()
    assert torch.equal(combine({"name": "krum", "f": f}, rows), rows[best])


@given(seeds, st.floats(0.1, 10))
@settings(deadline=None)
def test_krum_moves_turns_and_scales_with_its_rows(seed: int, factor: float) -> None:
    rows = draw(9, seed=seed)
    shift = draw(1, seed=seed + 1)
    turn = orthogonal(6, seed)
    spec = {"name": "krum", "f": 2}
    krum = combine(spec, rows)
    torch.testing.assert_close(combine(spec, rows + shift), krum + shift[0])
    torch.testing.assert_close(combine(spec, rows @ turn), krum @ turn)
    torch.testing.assert_close(combine(spec, factor * rows), factor * krum)


@pytest.mark.parametrize(
    "liars", ["far", "colluding", "nan", "infinite", "huge", "one huge coordinate"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_krum_returns_an_honest_row(liars: str, dtype: torch.dtype) -> None:
    honest = 1e-3 * draw(9, seed=1, dtype=dtype) + 1
    f = 3
    lies = {
        "far": 100 * draw(f, seed=2, dtype=dtype),
        "colluding": (-50 * draw(1, seed=3, dtype=dtype)).repeat(f, 1),
        "nan": torch.full((f, 6), math.nan, dtype=dtype),
        "infinite": torch.full((f, 6), math.inf, dtype=dtype),
        "huge": torch.full((f, 6), 1e30, dtype=dtype) * (1 + draw(f, dtype=dtype)),
        "one huge coordinate": torch.eye(6, dtype=dtype)[:f] * 1e12,
    }[liars]
    for order in (torch.cat([lies, honest]), torch.cat([honest, lies])):
        krum = combine({"name": "krum", "f": f}, order)
        assert (honest == krum).all(1).any()
        multi_krum = combine({"name": "multi_krum", "f": f}, order)
        assert (multi_krum - 1).abs().max() < 0.01


@pytest.mark.parametrize("offset", [0.0, 1.0, 1000.0])
def test_krum_scores_survive_single_precision(offset: float) -> None:
    """Rows that differ by 1e-4 of their length: X X^T alone would lose the difference."""
    base = draw(1, 20_000, seed=0, dtype=torch.float32) + offset
    noise = draw(20, 20_000, seed=1, dtype=torch.float32)
    rows = base + 1e-4 * base.abs().mean() * noise
    np.testing.assert_allclose(krum_scores(rows, 4), reference_scores(rows, 4), rtol=1e-3)


def test_krum_scores_survive_a_typical_row_that_is_an_attackers() -> None:
    """Liars as long as the honest: the first centre may be theirs, and is then given up."""
    base = draw(1, 20_000, seed=0, dtype=torch.float32)
    honest = base + 1e-4 * draw(9, 20_000, seed=1, dtype=torch.float32)
    liars = -base + 1e-4 * draw(3, 20_000, seed=2, dtype=torch.float32)
    rows = torch.cat([liars, honest])
    shuffled = rows[torch.randperm(12, generator=torch.Generator().manual_seed(0))]
    for order in (rows, rows.flip(0), shuffled):
        scores = krum_scores(order, 3)
        expected = reference_scores(order, 3)
        near = expected < expected.min() * 10
        assert near.sum() == 9
        np.testing.assert_allclose(scores[near], expected[near], rtol=1e-3)


def test_ties_go_to_the_lowest_index() -> None:
    rows = torch.zeros(5, 2, dtype=D)
    rows[0] = 9
    scores = krum_scores(rows, 1)
    assert scores.argmin() == 1


def test_multi_krum_averages_the_m_best() -> None:
    rows = draw(11, seed=4)
    best = reference_scores(rows, 2).argsort()
    of_four = combine({"name": "multi_krum", "f": 2, "m": 4}, rows)
    torch.testing.assert_close(of_four, rows[best[:4]].mean(0))
    of_all_but_f_and_two = combine({"name": "multi_krum", "f": 2}, rows)
    torch.testing.assert_close(of_all_but_f_and_two, rows[best[:7]].mean(0))


def test_multi_krum_takes_no_more_than_can_be_honest_when_few_reply() -> None:
    rows = torch.cat([draw(5, seed=4), 1e6 + draw(2, seed=5)])
    assert combine({"name": "multi_krum", "f": 2, "m": 9}, rows).abs().max() < 10


def test_krum_refuses_n_up_to_2f_plus_2() -> None:
    with pytest.raises(
        StudyError,
        match=r"n > 2f \+ 2 replies: with f=4 it needs 11, and a round of this study has 10",
    ):
        Combiner.build({"name": "krum", "f": 4}).check(10)
    Combiner.build({"name": "krum", "f": 4}).check(11)
    with pytest.raises(StudyError, match="n=4 for f=1"):
        krum_scores(draw(4), 1)


# Median and trimmed mean


@given(st.integers(1, 12), seeds)
@settings(deadline=None)
def test_the_median_is_the_usual_one_also_for_an_even_number(count: int, seed: int) -> None:
    rows = draw(count, seed=seed)
    np.testing.assert_allclose(combine("median", rows), np.median(rows.numpy(), axis=0))


@given(st.integers(1, 100), st.floats(0, 0.499), seeds)
@settings(deadline=None)
def test_the_trimmed_mean_drops_b_on_each_side_and_divides_by_what_is_left(
    count: int, beta: float, seed: int
) -> None:
    rows = draw(count, 3, seed=seed)
    b = math.floor(beta * count + 1e-9)
    expected = np.sort(rows.numpy(), axis=0)[b : count - b].mean(0)
    trimmed_mean = combine({"name": "trimmed_mean", "beta": beta}, rows)
    np.testing.assert_allclose(trimmed_mean, expected, atol=1e-12)


def test_the_trimmed_mean_does_not_fall_into_the_float_trap() -> None:
    rows = torch.arange(100, dtype=D)[:, None] ** 2
    expected = rows[29:71].mean()  # floor(0.29 * 100) is 28 in floating point
    torch.testing.assert_close(combine({"name": "trimmed_mean", "beta": 0.29}, rows)[0], expected)


@pytest.mark.parametrize("spec", ["median", {"name": "trimmed_mean", "beta": 0.4}])
@given(st.integers(1, 3), seeds)
@settings(deadline=None, max_examples=30)
def test_they_stay_within_the_honest_values_of_each_coordinate(
    spec: Any, liars: int, seed: int
) -> None:
    honest = draw(liars + 5, seed=seed)
    for lie in (1e9, -1e9, math.inf, -math.inf, math.nan):
        rows = torch.cat([torch.full((liars, 6), lie, dtype=D), honest])
        combined = combine(spec, rows)
        assert (combined <= honest.max(0)[0]).all()
        assert (combined >= honest.min(0)[0]).all()


@pytest.mark.parametrize("spec", ["median", {"name": "trimmed_mean", "beta": 0.3}])
@given(seeds, st.floats(0, 3))
@settings(deadline=None, max_examples=30)
def test_they_are_monotone_and_move_with_their_rows(spec: Any, seed: int, up: float) -> None:
    rows = draw(7, seed=seed)
    shift = draw(1, seed=seed + 1)
    combined = combine(spec, rows)
    torch.testing.assert_close(combine(spec, rows + shift), combined + shift[0])
    raised = rows.clone()
    raised[seed % 7] += up
    assert (combine(spec, raised) >= combined - 1e-12).all()


def test_beta_zero_is_the_mean() -> None:
    rows = draw(6)
    torch.testing.assert_close(combine({"name": "trimmed_mean", "beta": 0.0}, rows), rows.mean(0))


# Geometric median


def total_distance(z: np.ndarray, rows: torch.Tensor) -> float:
    return float(np.sqrt(((rows.numpy() - z) ** 2).sum(1)).sum())


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_agrees_with_a_generic_minimiser(seed: int) -> None:
    rows = draw(8, 4, seed=seed)
    median = combine("geometric_median", rows).numpy()

    def distance(z: np.ndarray) -> float:
        return total_distance(z, rows)

    def slope(z: np.ndarray) -> np.ndarray:
        gaps = z - rows.numpy()
        lengths = np.sqrt((gaps**2).sum(1, keepdims=True))
        return np.asarray((gaps / lengths).sum(0))

    start = rows.mean(0).numpy()
    options = {"gtol": 1e-10}
    best = scipy.optimize.minimize(distance, start, jac=slope, method="BFGS", options=options)
    np.testing.assert_allclose(median, best.x, atol=1e-6)
    assert np.abs(slope(median)).max() < 1e-6


@pytest.mark.parametrize("lie", [1e3, 1e9, 1e15, math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_liars_hardly_move_the_geometric_median(lie: float, dtype: torch.dtype) -> None:
    """Liars in two opposite directions cancel, so the median of all is the median of the honest."""
    honest = 0.01 * draw(9, 50, seed=1, dtype=dtype)
    way = torch.zeros(1, 50, dtype=dtype)
    way[0, 0] = lie
    median = combine("geometric_median", torch.cat([honest, way, way, -way, -way]))
    of_honest = combine("geometric_median", honest)
    tolerance = 2e-4 if dtype == torch.float32 else 1e-5
    torch.testing.assert_close(median, of_honest, rtol=0, atol=tolerance)


def test_the_geometric_median_of_most_rows_alike_is_that_row() -> None:
    rows = torch.cat([torch.ones(4, 3, dtype=D), 5 * draw(3, 3)])
    median = combine("geometric_median", rows)
    torch.testing.assert_close(median, torch.ones(3, dtype=D), rtol=0, atol=2e-6)


@given(seeds)
@settings(deadline=None, max_examples=20)
def test_the_geometric_median_moves_and_turns_with_its_rows(seed: int) -> None:
    rows = draw(7, seed=seed)
    shift = 3 * draw(1, seed=seed + 1)
    turn = orthogonal(6, seed)
    median = combine("geometric_median", rows)
    moved = combine("geometric_median", rows + shift)
    torch.testing.assert_close(moved, median + shift[0], atol=1e-6, rtol=0)
    turned = combine("geometric_median", rows @ turn)
    torch.testing.assert_close(turned, median @ turn, atol=1e-6, rtol=0)


def test_single_precision_costs_the_geometric_median_little() -> None:
    rows = 100 + draw(30, 5000, seed=3)
    exact = spatial_huber_location(rows, 1e-6)
    rough = spatial_huber_location(rows.float(), 1e-6)
    assert (rough - exact).norm() < 1e-4 * (rows - exact).norm(dim=1).mean()


# Zeno


def quadratic_loss(target: torch.Tensor) -> Any:
    """f_r(x + dx) for x = 0; the sample size is irrelevant."""
    return lambda dx, _size: ((dx - target) ** 2).sum(1, keepdim=True) / 2


def test_zeno_scores_are_descent_less_a_penalty() -> None:
    """By hand, for x = 0, the target (1, 0) and dx = (0.5, 0).

    f falls from 0.5 to 0.125; |dx / gamma|^2 = 25 at gamma 0.1.
    """
    rows = torch.tensor([[0.5, 0.0], [-1.0, 0.0]], dtype=D)
    target = torch.tensor([1.0, 0.0], dtype=D)
    plain = a_cohort({"dx": rows}, [1, 1], torch.ones(2, 1), FedAvg())
    cohort = replace(plain, server_loss=quadratic_loss(target))
    zeno: Any = Combiner.build({"name": "zeno", "rho": 0.01, "gamma": 0.1})
    expected = torch.tensor([0.375 - 0.25, 0.5 - 2.0 - 1.0], dtype=D)
    torch.testing.assert_close(zeno.scores(rows, cohort), expected)
    mean: Any = Combiner.build({"name": "zeno", "rho": 0.01, "gamma": 0.1, "norm": "mean"})
    expected = torch.tensor([0.375 - 0.125, 0.5 - 2.0 - 0.5], dtype=D)
    torch.testing.assert_close(mean.scores(rows, cohort), expected)


@given(st.integers(0, 4), seeds)
@settings(deadline=None)
def test_zeno_averages_all_but_the_b_lowest_scores(b: int, seed: int) -> None:
    rows = draw(6, seed=seed)
    target = draw(1, seed=seed + 1)[0]
    loss = quadratic_loss(target)
    spec = {"name": "zeno", "b": b, "rho": 0.001, "gamma": 1.0}
    zeno = combine(spec, rows, server_loss=loss)
    descent = (target @ target) / 2 - ((rows - target) ** 2).sum(1) / 2
    scores = descent - 0.001 * (rows**2).sum(1)
    best = scores.argsort(descending=True)[: 6 - b]
    torch.testing.assert_close(zeno, rows[best].mean(0))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(combine(spec, rows[order], server_loss=loss), zeno)


def test_zeno_with_b_zero_is_the_mean() -> None:
    rows = draw(5)
    zeno = combine({"name": "zeno", "b": 0}, rows, server_loss=quadratic_loss(rows[0]))
    torch.testing.assert_close(zeno, rows.mean(0))


def test_zeno_withstands_a_faulty_majority() -> None:
    target = torch.ones(6, dtype=D)
    honest = target + 0.1 * draw(3, seed=1)
    liars = torch.cat([-10 * target.repeat(6, 1), torch.full((1, 6), math.nan, dtype=D)])
    spec = {"name": "zeno", "b": 7}
    zeno = combine(spec, torch.cat([liars, honest]), server_loss=quadratic_loss(target))
    torch.testing.assert_close(zeno, honest.mean(0))


def test_zeno_refuses_to_leave_out_everybody() -> None:
    with pytest.raises(
        StudyError, match="zeno leaves out b=4 of the 4 replies in a round; use b < 4"
    ):
        Combiner.build({"name": "zeno", "b": 4}).check(4)


# All of them


def test_a_choice_made_on_dx_holds_for_every_entry() -> None:
    rows = draw(7, seed=2)
    message = {"dx": rows, "dc": torch.arange(7, dtype=D)[:, None].expand(7, 4)}
    plain = a_cohort(message, [1.0] * 7, torch.ones(7, 1), FedAvg())
    cohort = replace(plain, combiner=Combiner.build({"name": "krum", "f": 2}))
    chosen = int(reference_scores(rows, 2).argmin())
    assert torch.equal(cohort.combine("dc"), torch.full((4,), float(chosen), dtype=D))


@pytest.mark.parametrize("name", list(Combiner.known()))
def test_the_order_of_clients_is_irrelevant(name: str) -> None:
    rows = draw(9, seed=8)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    loss = quadratic_loss(rows.mean(0))
    straight = combine(name, rows, server_loss=loss)
    torch.testing.assert_close(combine(name, rows[order], server_loss=loss), straight)


@pytest.mark.parametrize("name", list(Combiner.known()))
def test_rows_that_agree_are_returned_as_they_are(name: str) -> None:
    rows = draw(1).repeat(7, 1)
    torch.testing.assert_close(combine(name, rows, server_loss=quadratic_loss(rows[0])), rows[0])


@pytest.mark.parametrize("name", list(Combiner.known()))
def test_the_rows_are_left_as_they_were(name: str) -> None:
    rows = draw(7, 3000, dtype=torch.float32)
    before = rows.clone()
    combine(name, rows, server_loss=quadratic_loss(rows.mean(0)))
    assert torch.equal(rows, before)


def test_chunks_of_columns_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = draw(8, 1000)
    loss = quadratic_loss(rows[0])
    in_one_chunk = {name: combine(name, rows, server_loss=loss) for name in Combiner.known()}
    monkeypatch.setattr(chunks, "CELLS", 8 * 37)
    monkeypatch.setattr(chunks.column_chunks, "__defaults__", (8 * 37,))
    for name, value in in_one_chunk.items():
        torch.testing.assert_close(combine(name, rows, server_loss=loss), value)
