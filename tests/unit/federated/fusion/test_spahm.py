"""SPAHM: what it estimates, against direct computations, and what it recovers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    Floats,
    a_network,
    answers,
    assert_networks_agree,
    changed,
    groups,
    in_order,
    relatives,
    shuffled,
)
from scipy.optimize import linear_sum_assignment

from tacit.core.errors import DataError, StudyError
from tacit.federated.fusion.matching import Bag, Prior, Rules, match
from tacit.federated.fusion.spahm import FLOOR, Spahm, estimate, nearest

seeds = st.integers(0, 9999)


def some_bags(rng: np.random.Generator, sizes: list[int], size: int) -> list[Floats]:
    return [rng.normal(1.0, 2.0, (n, size)) for n in sizes]


def hyper(
    bags: list[Floats], places: Any, s2: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """mu0, s2 and s02 by their formulas, dimension by dimension; s2 is for where nothing tells."""
    D = bags[0].shape[1]
    atoms = [[bags[j][k] for j, k in sorted(members)] for members in groups(places)]
    M = sum(map(len, atoms))
    L = len(atoms)
    mu0 = np.zeros(D)
    noise = np.zeros(D)
    s02 = np.zeros(D)
    for d in range(D):
        means = [sum(v[d] for v in members) / len(members) for members in atoms]
        mu0[d] = sum(means) / L
        if M > L:
            rest = 0.0
            for members in atoms:
                Q = sum(v[d] ** 2 for v in members)
                S = sum(v[d] for v in members)
                rest += Q - S**2 / len(members)
            noise[d] = rest / (M - L)
        elif s2 is not None:
            noise[d] = s2[d]
        between = sum((mean - mu0[d]) ** 2 for mean in means) / L
        s02[d] = between - noise[d] * sum(1 / len(members) for members in atoms) / L
    return mu0, np.maximum(noise, 1e-10), np.maximum(s02, 1e-10)


# The hyper-parameters


@given(seeds, st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(1, 3))
def test_hyper_parameters_are_those_of_the_formulas(seed: int, sizes: list[int], size: int) -> None:
    rng = np.random.default_rng(seed)
    bags = some_bags(rng, sizes, size)
    chosen = [rng.permutation(5)[:n] for n in sizes]
    used = np.unique(np.concatenate(chosen))
    atoms = [np.searchsorted(used, indices) for indices in chosen]
    guess = (rng.normal(size=size), rng.uniform(0.1, 1, size), rng.uniform(0.1, 1, size))
    fast = estimate(bags, atoms, guess)
    slow = hyper(bags, atoms, guess[1])
    np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)


def test_where_nobody_is_matched_the_noise_is_the_guess() -> None:
    """M = L: nothing tells the noise; the means' spread is that of the atoms and of the noise."""
    bags = [np.array([[0.0], [4.0]]), np.array([[8.0]])]
    guess = (np.zeros(1), np.array([2.0]), np.ones(1))
    mean, variance, prior = estimate(bags, [np.array([0, 1]), np.array([2])], guess)
    assert (mean.item(), variance.item()) == (4.0, 2.0)
    assert prior.item() == pytest.approx(32 / 3 - 2)


def test_a_prior_variance_that_comes_out_negative_is_the_floor() -> None:
    """Both atoms have the mean 0, and members at a distance: 0 - s2 / 2 < 0."""
    bags = [np.array([[1.0], [2.0]]), np.array([[-1.0], [-2.0]])]
    guess = (np.zeros(1), np.ones(1), np.ones(1))
    mean, variance, prior = estimate(bags, [np.array([0, 1])] * 2, guess)
    assert (mean.item(), variance.item(), prior.item()) == (0.0, 5.0, 1e-10)
    assert FLOOR == 1e-10


def test_copies_have_the_least_noise_there_is() -> None:
    bags = [np.array([[1.0], [2.0]])] * 2
    _, variance, prior = estimate(bags, [np.arange(2)] * 2, (np.zeros(1), np.ones(1), np.ones(1)))
    assert variance.item() == 1e-10
    assert prior.item() == pytest.approx(0.25)


def test_the_atoms_follow_from_the_hyper_parameters_that_were_estimated() -> None:
    """theta = (mu0 s2 + s02 S) / (s2 + m s02), with mu0, s2 and s02 of the places that came out."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        centres = rng.normal(0, 3, (5, 2))
        bags = [centres[rng.permutation(5)[:n]] + rng.normal(0, 0.3, (n, 2)) for n in (3, 4, 5)]
        matching = Spahm().match(bags, rng)
        mu0, s2, s02 = hyper(bags, matching.places, s2=np.full(2, np.nan))
        for atom, members in zip(matching.atoms, groups(matching.places), strict=True):
            S = sum(bags[j][k] for j, k in members)
            m = len(members)
            np.testing.assert_allclose(atom, (mu0 * s2 + s02 * S) / (s2 + m * s02), rtol=1e-9)


def test_given_variances_are_kept_unless_estimated() -> None:
    rng = np.random.default_rng(0)
    bags = some_bags(rng, [3, 4, 2], 2)
    method = Spahm(variance=0.5, prior_variance=2.0, estimate=False, gamma=3.0, sweeps=4)
    matching = method.match(bags, in_order(2, 0, 1))
    prior = Prior(np.vstack(bags).mean(0), np.full(2, 1 / 2.0))
    rules = Rules(3.0, 4, integrated=True)
    weighed = [Bag(bag, np.full(2, 2.0)) for bag in bags]
    expected = match(weighed, prior, rules, in_order(2, 0, 1))
    assert groups(matching.places) == groups(expected.places)
    np.testing.assert_allclose(matching.atoms, expected.atoms)


def test_the_first_guess_of_the_noise_is_half_the_distance_to_another_clients_nearest() -> None:
    """0 is 1 from 1 and 5 is 2 from 7, in squares 1, 4, 1, 4; per dimension, half of them."""
    bags = [np.array([[0.0, 0.0], [5.0, 5.0]]), np.array([[1.0, 0.0], [5.0, 7.0]])]
    assert nearest(bags) == pytest.approx(2.5 / 2)


# Against a slow one


def slow_spahm(
    bags: list[Floats], order: list[int], sweeps: int, first: Any, gamma: float
) -> list[dict[int, int]]:
    """In plain loops, with the closed form; the hyper-parameters are renewed before every sweep."""
    mu0, s2, s02 = first
    J = len(bags)

    def score(S: Floats, m: int) -> float:
        top = s02 / s2 * S**2 + 2 * mu0 * S - m * mu0**2
        return float((top / (m * s02 + s2) - np.log(m * s02 + s2)).sum())

    def place(j: int, atoms: list[dict[int, int]]) -> None:
        n = len(bags[j])
        gains = np.zeros((n, len(atoms) + n))
        for row, v in enumerate(bags[j]):
            for i, atom in enumerate(atoms):
                S = sum(bags[k][number] for k, number in atom.items())
                m = len(atom)
                gains[row, i] = score(S + v, m + 1) - score(S, m) + 2 * np.log(m / (J - m))
            for r in range(1, n + 1):
                new = score(v, 1) + np.log(s2).sum() - 2 * np.log(r) + 2 * np.log(gamma / J)
                gains[row, len(atoms) + r - 1] = new
        before = len(atoms)
        for row, column in zip(*linear_sum_assignment(gains, maximize=True), strict=True):
            if column < before:
                atoms[column][j] = int(row)
            else:
                atoms.append({j: int(row)})

    def indices(atoms: list[dict[int, int]]) -> list[Any]:
        """Of the atoms of every client's vectors."""
        per_client = [np.zeros(len(bag), int) for bag in bags]
        for i, atom in enumerate(atoms):
            for j, number in atom.items():
                per_client[j][number] = i
        return per_client

    atoms: list[dict[int, int]] = []
    for j in sorted(range(J), key=lambda j: -len(bags[j])):
        place(j, atoms)
    for _ in range(sweeps):
        mu0, s2, s02 = hyper(bags, indices(atoms), first[1])
        for j in order:
            for atom in atoms:
                atom.pop(j, None)
            atoms = [atom for atom in atoms if atom]
            place(j, atoms)
    return atoms


@given(
    seeds,
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.integers(0, 3),
    st.floats(0.1, 10),
)
@settings(max_examples=60)
def test_spahm_is_the_slow_one(seed: int, sizes: list[int], sweeps: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 2, (6, 2))
    bags = [centres[rng.permutation(6)[:n]] + rng.normal(0, 0.5, (n, 2)) for n in sizes]
    order = rng.permutation(len(sizes)).tolist()
    method = Spahm(variance=0.4, prior_variance=3.0, gamma=gamma, sweeps=sweeps)
    matching = method.match(bags, in_order(*order))
    first = np.vstack(bags).mean(0), np.full(2, 0.4), np.full(2, 3.0)
    expected = slow_spahm(bags, order, sweeps, first, gamma)
    assert set(groups(matching.places)) == {frozenset(atom.items()) for atom in expected}


# What it recovers


@pytest.mark.parametrize("clients", [3, 6])
def test_separated_centres_are_recovered_up_to_the_shrinkage(clients: int) -> None:
    rng = np.random.default_rng(clients)
    grid = np.array(list(itertools.product(range(3), repeat=2)), float)
    centres = 10 * rng.permutation(grid)
    truth = [rng.permutation(9)[: rng.integers(5, 10)] for _ in range(clients)]
    bags = [centres[seen] + rng.normal(0, 0.1, (len(seen), 2)) for seen in truth]
    matching = Spahm().match(bags, rng)
    assert set(groups(matching.places)) == set(groups(truth))
    mu0, s2, s02 = hyper(bags, matching.places)
    assert s2 == pytest.approx(0.01, rel=0.8)
    for atom, members in zip(matching.atoms, groups(matching.places), strict=True):
        m = len(members)
        mean = np.mean([bags[j][k] for j, k in members], axis=0)
        shrunk = (mean - mu0) * (m / s2) / (1 / s02 + m / s2)
        np.testing.assert_allclose(atom - mu0, shrunk, rtol=1e-6, atol=1e-6)
        client, number = min(members)
        assert np.abs(atom - centres[truth[client][number]]).max() < 0.4


def test_copies_shrink_towards_the_mean_with_given_variances() -> None:
    """Three copies of 0 and 10, both variances 1: 3 / (1 + 3) of the way from the mean, 5."""
    method = Spahm(variance=1.0, prior_variance=1.0, estimate=False)
    matching = method.match([np.array([[0.0], [10.0]])] * 3, np.random.default_rng(0))
    assert sorted(matching.atoms.ravel()) == pytest.approx([5 - 0.75 * 5, 5 + 0.75 * 5])


@given(
    seeds, st.lists(st.integers(1, 5), min_size=2, max_size=4), st.booleans(), st.floats(0.05, 20)
)
@settings(max_examples=40)
def test_atoms_are_between_the_largest_client_and_all_and_one_to_one(
    seed: int, sizes: list[int], estimated: bool, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    matching = Spahm(estimate=estimated, gamma=gamma).match(some_bags(rng, sizes, 3), rng)
    assert max(sizes) <= len(matching.atoms) <= sum(sizes)
    for indices, n in zip(matching.places, sizes, strict=True):
        assert len(set(indices.tolist())) == len(indices) == n
    assert np.isfinite(matching.atoms).all()


@given(seeds, st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans())
@settings(max_examples=40)
def test_the_order_of_a_clients_neurons_changes_nothing(
    seed: int, widths: list[int], estimated: bool
) -> None:
    rng = np.random.default_rng(seed)
    networks = relatives([widths, [width + 1 for width in widths], widths], rng, 0.2)
    moved, orders = zip(*(shuffled(network, rng) for network in networks), strict=True)
    method = Spahm(estimate=estimated)
    straight = method.fuse(networks, np.random.default_rng(seed))
    mixed = method.fuse(moved, np.random.default_rng(seed))
    for layer in range(len(widths)):
        names = [order[layer] for order in orders]
        assert set(groups(straight.assignment[layer])) == set(
            groups(mixed.assignment[layer], names)
        )
    x = rng.normal(size=(20, 3))
    expected = answers(straight.network, x)
    np.testing.assert_allclose(answers(mixed.network, x), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("widths", [[6], [5, 4], [4, 3, 5]])
def test_copies_of_a_network_give_it_back(widths: list[int]) -> None:
    """Their noise is nothing, so nothing shrinks."""
    rng = np.random.default_rng(1)
    network = a_network(widths, rng)
    fused = Spahm().fuse([shuffled(network, rng)[0] for _ in range(3)], rng).network
    assert fused.widths == tuple(widths)
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(answers(fused, x), answers(network, x), rtol=1e-6, atol=1e-6)


def test_outputs_biases_are_the_mean() -> None:
    rng = np.random.default_rng(0)
    networks = relatives([[3], [4]], rng)
    bias = Spahm().fuse(networks, rng).network.biases[-1]
    np.testing.assert_allclose(bias, (networks[0].biases[-1] + networks[1].biases[-1]) / 2)


def test_more_atoms_with_a_larger_gamma_on_average() -> None:
    means = []
    for gamma in (1e-6, 1.0, 1e6):
        rng = np.random.default_rng(0)
        method = Spahm(variance=0.5, prior_variance=4.0, estimate=False, gamma=gamma)
        matchings = [method.match(some_bags(rng, [4, 4, 3], 2), rng) for _ in range(20)]
        means.append(np.mean([len(matching.atoms) for matching in matchings]))
    assert means[0] < means[1] < means[2]


def test_a_second_round_goes_on_from_the_first() -> None:
    rng = np.random.default_rng(0)
    networks = relatives([[3, 3], [4, 2]], rng, 0.1)
    first = Spahm().fuse(networks, rng)
    second = Spahm(sweeps=0).fuse(networks, rng, start=first.assignment)
    for before, after in zip(first.assignment, second.assignment, strict=True):
        assert groups(before) == groups(after)
    assert_networks_agree(first.network, second.network, rtol=1e-9, atol=1e-12)


# What it refuses, and what it need not


def test_a_client_without_vectors_and_one_client_alone_are_no_harm() -> None:
    rng = np.random.default_rng(0)
    bags = [np.zeros((0, 2)), rng.normal(size=(3, 2)), rng.normal(size=(2, 2))]
    matching = Spahm().match(bags, rng)
    assert [len(indices) for indices in matching.places] == [0, 3, 2]
    alone = rng.normal(size=(4, 2))
    matching = Spahm().match([alone], rng)
    assert matching.counts.tolist() == [1] * 4
    assert matching.atoms[matching.places[0]] == pytest.approx(alone, abs=1e-6)


def test_the_order_of_many_vectors_changes_nothing() -> None:
    """Of so many, the first guess looks at some only."""
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(150, 6))
    bags = [pool[rng.permutation(150)[:100]] + 0.2 * rng.normal(size=(100, 6)) for _ in range(10)]
    straight = Spahm(sweeps=1).match(bags, np.random.default_rng(1))
    for turn in range(3):
        orders = [rng.permutation(100) for _ in bags]
        shuffled = [bag[order] for bag, order in zip(bags, orders, strict=True)]
        mixed = Spahm(sweeps=1).match(shuffled, np.random.default_rng(1))
        assert len(mixed.atoms) == len(straight.atoms), turn
        renamed = set()  # pairs of an atom's two indices
        for before, after, order in zip(straight.places, mixed.places, orders, strict=True):
            renamed |= set(zip(before[order].tolist(), after.tolist(), strict=True))
        assert len(renamed) == len(straight.atoms)  # one to one: the same partition


@pytest.mark.parametrize("shift", [1e4, 1e8])
def test_vectors_far_from_zero_are_matched_as_well(shift: float) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=5, size=(8, 4))
    bags = [centres[rng.permutation(8)[:5]] + 0.01 * rng.normal(size=(5, 4)) for _ in range(10)]
    near = Spahm().match(bags, np.random.default_rng(1))
    far = Spahm().match([bag + shift for bag in bags], np.random.default_rng(1))
    assert len(far.atoms) == len(near.atoms) == 8
    assert far.atoms - shift == pytest.approx(near.atoms, abs=1e-6 * shift / 100)


@pytest.mark.parametrize(
    "bags",
    [
        [],
        [np.zeros(3)],
        [np.zeros((2, 3)), np.zeros((2, 2))],
        [np.zeros((0, 2))],
        [np.array([[1.0, np.nan]])],
        [np.array([[np.inf]]), np.ones((1, 1))],
    ],
    ids=["none", "no matrix", "other dimensions", "no vectors", "nan", "infinite"],
)
def test_bags_that_cannot_be_matched_are_refused(bags: list[Any]) -> None:
    with pytest.raises(DataError, match="expected"):
        Spahm().match(bags, np.random.default_rng(0))


@pytest.mark.parametrize(
    "wrong", [{"variance": 0.0}, {"prior_variance": -1.0}, {"gamma": 0.0}, {"sweeps": -1}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=rf"spahm\.{next(iter(wrong))}: expected"):
        Spahm(**wrong)


def test_scaled_networks_are_matched_alike() -> None:
    """Variances are estimated, so the unit of the weights does not matter."""
    rng = np.random.default_rng(4)
    networks = relatives([[4], [5], [3]], rng, 0.2)
    large = [changed(network, lambda array: 100 * array) for network in networks]
    of_small = Spahm().fuse(networks, in_order(1, 0, 2))
    of_large = Spahm().fuse(large, in_order(1, 0, 2))
    assert groups(of_small.assignment[0]) == groups(of_large.assignment[0])
