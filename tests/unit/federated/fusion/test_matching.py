"""Matching against the model that it is derived from.

Exact posteriors and marginals, and every assignment there is.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Floats, groups, in_order
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm

from tacit.federated.fusion.matching import Atoms, Bag, Prior, Rules, assign, costs, gains, match

seeds = st.integers(0, 9999)


# The model, from its definition


def profiled(vectors: Floats, precisions: Floats, prior: Prior) -> float:
    """The log-density of an atom's members, (m, D), and of the atom itself, where that is best."""
    centres = np.vstack([vectors, prior.mean])
    weights = np.vstack([precisions, prior.precision])
    theta = np.average(centres, axis=0, weights=weights)  # the mode of a product of Gaussians
    noise = norm.logpdf(vectors, theta, 1 / np.sqrt(precisions)).sum()
    return float(noise + norm.logpdf(theta, prior.mean, 1 / np.sqrt(prior.precision)).sum())


def marginal(vectors: Floats, precisions: Floats, prior: Prior) -> float:
    """The log-density of an atom's members, whatever the atom is.

    They have its variance in common.
    """
    count = len(vectors)
    density = 0.0
    for d, mean in enumerate(prior.mean):
        shared_variance = np.full((count, count), 1 / prior.precision[d])
        covariance = shared_variance + np.diag(1 / precisions[:, d])
        means = np.full(count, mean)
        density += float(multivariate_normal.logpdf(vectors[:, d], means, covariance))
    return density


def shared(counts: Floats, clients: int, gamma: float) -> float:
    """The log-probability that so many have taken each of an Indian buffet's named dishes."""
    counts = np.asarray(counts, float)
    terms = gammaln(counts) + gammaln(clients - counts + 1) - gammaln(clients + 1) + math.log(gamma)
    return float(terms[counts > 0].sum())


def objective(
    bags: list[Bag], places: Any, prior: Prior, gamma: float, integrated: bool, client: int
) -> float:
    """What one client's assignment maximises, with the others' fixed.

    It is twice the log of the posterior or the marginal. The normaliser of atoms is left out of the
    posterior, as in the paper. Of the client's own new atoms, all orders are the same.
    """
    density = marginal if integrated else profiled
    normaliser = 0.0 if integrated else norm.logpdf(0, 0, 1 / np.sqrt(prior.precision)).sum()
    vectors_of_client = {(client, k) for k in range(len(places[client]))}
    total = 0.0
    counts = []
    alone = 0
    for members in groups(places):
        vectors = np.array([bags[j].vectors[number] for j, number in members])
        precisions = np.array([bags[j].precision for j, _ in members])
        total += density(vectors, precisions, prior) - normaliser
        counts.append(len(members))
        alone += members <= vectors_of_client
    return 2 * (total + shared(np.array(counts), len(bags), gamma) - gammaln(alone + 1))


def a_case(seed: int, sizes: list[int], size: int) -> tuple[list[Bag], Prior]:
    """Bags with a precision for every client and dimension, and a prior with a mean."""
    rng = np.random.default_rng(seed)
    bags = [Bag(rng.normal(0.5, 1.5, (n, size)), rng.uniform(0.3, 4, size)) for n in sizes]
    return bags, Prior(rng.normal(size=size), rng.uniform(0.2, 3, size))


def some_places(rng: np.random.Generator, sizes: list[int], atoms: int) -> list[Any]:
    """Each client's vectors at different atoms, none of which is empty."""
    chosen = [rng.permutation(max(atoms, n))[:n] for n in sizes]
    used = np.unique(np.concatenate(chosen))
    return [np.searchsorted(used, indices) for indices in chosen]


# What a vector gains at an atom


@given(seeds, st.integers(2, 6), st.integers(1, 4), st.booleans(), st.floats(0.1, 20))
@settings(max_examples=60)
def test_gains_are_twice_the_exact_log_density_they_add(
    seed: int, clients: int, size: int, integrated: bool, gamma: float
) -> None:
    """But for a constant of every vector and, in the posterior, the normaliser of new atoms."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, clients).tolist()
    bags, prior = a_case(seed, sizes, size)
    first, *rest = bags
    placed = some_places(rng, sizes[1:], 5)
    atoms = Atoms.of(rest, placed, prior)
    at_atoms, at_new = costs(first, atoms, prior, clients, Rules(gamma, integrated=integrated))
    density = marginal if integrated else profiled
    dropped = 0.0 if integrated else float(np.log(2 * np.pi / prior.precision).sum())
    expected = np.zeros((sizes[0], len(atoms.counts) + 1))
    for row, v in enumerate(first.vectors):
        for column, members in enumerate(groups(placed)):
            m = len(members)
            vectors = np.array([rest[j].vectors[k] for j, k in members])
            precisions = np.array([rest[j].precision for j, _ in members])
            before = density(vectors, precisions, prior) + shared([m], clients, gamma)
            vectors = np.vstack([vectors, v])
            precisions = np.vstack([precisions, first.precision])
            after = density(vectors, precisions, prior) + shared([m + 1], clients, gamma)
            expected[row, column] = 2 * (after - before)
        alone = density(v[None], first.precision[None], prior) + shared([1], clients, gamma)
        expected[row, -1] = 2 * alone + dropped
    gap = expected + np.column_stack([at_atoms, at_new])
    assert np.ptp(gap, axis=1).max() < 1e-9


@given(seeds, st.integers(1, 5), st.integers(2, 6))
def test_integrated_gains_are_the_closed_form(seed: int, size: int, clients: int) -> None:
    """l(S, m) of the specification, with the same noise for all."""
    rng = np.random.default_rng(seed)
    s2 = rng.uniform(0.1, 2, size)
    s02 = rng.uniform(0.1, 2, size)
    mu0 = rng.normal(size=size)

    def score(S: Floats, m: int) -> float:
        top = s02 / s2 * S**2 + 2 * mu0 * S - m * mu0**2
        return float((top / (m * s02 + s2) - np.log(m * s02 + s2)).sum())

    prior = Prior(mu0, 1 / s02)
    gamma = rng.uniform(0.1, 5)
    first, *rest = [Bag(rng.normal(size=(3, size)), 1 / s2) for _ in range(clients)]
    placed = some_places(rng, [3] * (clients - 1), 4)
    atoms = Atoms.of(rest, placed, prior)
    at_atoms, at_new = costs(first, atoms, prior, clients, Rules(gamma, integrated=True))
    for row, v in enumerate(first.vectors):
        for column, members in enumerate(groups(placed)):
            S = np.sum([rest[j].vectors[k] for j, k in members], axis=0)
            m = len(members)
            gain = score(S + v, m + 1) - score(S, m) + 2 * math.log(m / (clients - m))
            assert -at_atoms[row, column] == pytest.approx(gain, abs=1e-9)
        gain = score(v, 1) + np.log(s2).sum() + 2 * math.log(gamma / clients)
        assert -at_new[row] == pytest.approx(gain, abs=1e-9)


def test_gains_of_one_number_by_hand() -> None:
    """Prior N(1, 1/2), an atom with one member 3 of precision 4, a vector 2 of precision 1.

    There are three clients.
    """
    prior = Prior(np.array([1.0]), np.array([2.0]))
    bag = Bag(np.array([[2.0]]), np.array([1.0]))
    member = Bag(np.array([[3.0]]), np.array([4.0]))
    atoms = Atoms.of([member], [np.array([0])], prior)
    first = (2 + 12 + 2) ** 2 / (2 + 4 + 1) - (2 + 12) ** 2 / (2 + 4)
    assert gains(bag, atoms).item() == pytest.approx(first)
    assert gains(bag, atoms, integrated=True).item() == pytest.approx(first + math.log(6 / 7))
    at_atoms, at_new = costs(bag, atoms, prior, 3, Rules(gamma=6.0))
    assert at_atoms.item() == pytest.approx(-first - 2 * math.log(1 / 2))
    assert at_new.item() == pytest.approx(-((2 + 2) ** 2 / 3 - 2**2 / 2) - 2 * math.log(2))
    at_atoms, _ = costs(bag, atoms, prior, 3, Rules(popularity=1.0))
    assert at_atoms.item() == pytest.approx(-first - math.log(1 / 2))


def test_a_count_is_capped_where_the_rules_say_so() -> None:
    """Eleven of thirteen clients count as ten: log(10 / 3)."""
    prior = Prior(np.zeros(1), np.ones(1))
    bag = Bag(np.ones((1, 1)), np.ones(1))
    atoms = Atoms.of([bag] * 11, [np.zeros(1, np.int64)] * 11, prior)
    capped, _ = costs(bag, atoms, prior, 13, Rules(most_counted=10))
    plain, _ = costs(bag, atoms, prior, 13, Rules())
    difference = 2 * math.log(11 / 2) - 2 * math.log(10 / 3)
    assert capped.item() - plain.item() == pytest.approx(difference)


# The best assignment


def price(at_atoms: Floats, at_new: Floats, columns: Any) -> float:
    new = columns >= at_atoms.shape[1]
    at_old = at_atoms[~new, columns[~new]]
    return float(at_old.sum() + at_new[new].sum() + 2 * gammaln(new.sum() + 1))


def least_price(at_atoms: Floats, at_new: Floats, most_new: int) -> float:
    """Over all ways to assign the rows."""
    size, atoms = at_atoms.shape
    best = math.inf
    for choice in itertools.product(range(atoms + 1), repeat=size):
        old = [column for column in choice if column < atoms]
        if len(set(old)) == len(old) and size - len(old) <= most_new:
            best = min(best, price(at_atoms, at_new, np.array(choice)))
    return best


def check_columns(at_atoms: Floats, most_new: int | None, columns: Any) -> None:
    size, atoms = at_atoms.shape
    assert len(columns) == size
    assert len(set(columns.tolist())) == size
    assert (columns >= atoms).sum() <= (size if most_new is None else most_new)


def a_problem(seed: int, size: int, atoms: int, lean: float, ties: bool) -> tuple[Floats, Floats]:
    """Costs at atoms and at a new one; `lean` makes the new one dearer."""
    rng = np.random.default_rng(seed)
    at_atoms = rng.normal(0, 3, (size, atoms))
    at_new = rng.normal(0, 3, size) + lean
    if ties:
        return at_atoms.round(), at_new.round()
    return at_atoms, at_new


leans = st.sampled_from([-50.0, -3.0, -1.0, 0.0, 3.0, 50.0])


@given(seeds, st.integers(1, 4), st.integers(0, 5), leans, st.booleans(), st.integers(0, 5))
@settings(max_examples=150)
def test_an_assignment_costs_the_least_of_all(
    seed: int, size: int, atoms: int, lean: float, ties: bool, limit: int
) -> None:
    at_atoms, at_new = a_problem(seed, size, atoms, lean, ties)
    for most_new in (None, max(limit, 1, size - atoms)):
        columns = assign(at_atoms, at_new, most_new)
        check_columns(at_atoms, most_new, columns)
        expected = least_price(at_atoms, at_new, size if most_new is None else most_new)
        assert price(at_atoms, at_new, columns) == pytest.approx(expected, abs=1e-9)


@given(
    seeds,
    st.integers(1, 60),
    st.integers(0, 70),
    st.floats(-9, 9),
    st.booleans(),
    st.integers(1, 60),
)
@settings(max_examples=150)
def test_large_assignments_are_those_of_the_whole_matrix(
    seed: int, size: int, atoms: int, lean: float, ties: bool, limit: int
) -> None:
    at_atoms, at_new = a_problem(seed, size, atoms, lean, ties)
    for most_new in (None, max(limit, size - atoms, 1)):
        most = size if most_new is None else min(size, most_new)
        prices = 2 * np.log(np.arange(1, most + 1))
        matrix = np.hstack([at_atoms, at_new[:, None] + prices])
        columns = assign(at_atoms, at_new, most_new)
        check_columns(at_atoms, most_new, columns)
        expected = matrix[linear_sum_assignment(matrix)].sum()
        assert price(at_atoms, at_new, columns) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("lean", [-1e6, 1e6])
def test_all_may_be_new_and_none_may_be(lean: float) -> None:
    at_atoms, at_new = a_problem(0, 30, 40, lean, False)
    new = assign(at_atoms, at_new) >= 40
    assert (new == (lean < 0)).all()


def test_without_atoms_everything_is_new() -> None:
    assert sorted(assign(np.zeros((7, 0)), np.ones(7))) == list(range(7))


# Matching


widths = st.lists(st.integers(1, 5), min_size=2, max_size=4)


@given(seeds, widths, st.booleans(), st.floats(0.05, 50), st.integers(0, 3))
@settings(max_examples=60)
def test_atoms_are_between_the_largest_client_and_all_vectors_and_one_to_one(
    seed: int, sizes: list[int], integrated: bool, gamma: float, sweeps: int
) -> None:
    bags, prior = a_case(seed, sizes, 2)
    matching = match(bags, prior, Rules(gamma, sweeps, integrated), np.random.default_rng(seed))
    assert max(sizes) <= len(matching.atoms) <= sum(sizes)
    for indices, n in zip(matching.places, sizes, strict=True):
        assert len(set(indices.tolist())) == n == len(indices)
    together = np.concatenate(matching.places)
    assert sorted(set(together.tolist())) == list(range(len(matching.atoms)))  # none is empty
    assert matching.counts.tolist() == np.bincount(together).tolist()


@given(seeds, widths, st.integers(0, 3))
@settings(max_examples=60)
def test_an_atom_is_the_stated_estimate(seed: int, sizes: list[int], sweeps: int) -> None:
    bags, prior = a_case(seed, sizes, 3)
    matching = match(bags, prior, Rules(sweeps=sweeps), np.random.default_rng(seed))
    for atom, members in zip(matching.atoms, groups(matching.places), strict=True):
        S = sum(bags[j].precision * bags[j].vectors[k] for j, k in members)
        P = sum(bags[j].precision for j, _ in members)
        expected = (prior.mean * prior.precision + S) / (prior.precision + P)
        np.testing.assert_allclose(atom, expected, atol=1e-10)


def every_assignment(size: int, atoms: int) -> list[Any]:
    """All one-to-one assignments of a client's vectors to others' atoms, or to new ones."""
    assignments = []
    for choice in itertools.product(range(atoms + 1), repeat=size):
        old = [index for index in choice if index < atoms]
        if len(set(old)) == len(old):
            indices = np.array(choice)
            new = indices == atoms
            indices[new] += np.arange(new.sum())
            assignments.append(indices)
    return assignments


@given(
    seeds, st.lists(st.integers(1, 3), min_size=2, max_size=4), st.booleans(), st.floats(0.1, 20)
)
@settings(max_examples=40)
def test_a_client_that_is_matched_again_finds_the_best_of_all_places(
    seed: int, sizes: list[int], integrated: bool, gamma: float
) -> None:
    """So, with fixed hyper-parameters, a step never lowers the client's objective."""
    rng = np.random.default_rng(seed)
    bags, prior = a_case(seed, sizes, 2)
    start = some_places(rng, sizes, 4)
    client = int(rng.integers(len(sizes)))
    matching = match(bags, prior, Rules(gamma, 1, integrated), in_order(client), start=start)

    def value(all_indices: Any) -> float:
        return objective(bags, all_indices, prior, gamma, integrated, client)

    without = [np.asarray(indices) for indices in start]
    without[client] = without[client][:0]
    used = np.unique(np.concatenate(without))
    without = [np.searchsorted(used, indices) for indices in without]
    values = []
    for indices in every_assignment(sizes[client], len(used)):
        tried = [*without[:client], indices, *without[client + 1 :]]
        values.append(value(tried))
    best = max(values)
    assert value(matching.places) == pytest.approx(best, abs=1e-8)
    assert best >= value(start) - 1e-9
    unmoved = [j for j in range(len(sizes)) if j != client]
    before = groups([start[j] for j in unmoved])
    after = groups([matching.places[j] for j in unmoved])
    assert set(after) == set(before)


@given(seeds, widths, st.booleans(), st.integers(1, 8))
@settings(max_examples=40)
def test_many_sweeps_are_one_after_another(
    seed: int, sizes: list[int], integrated: bool, sweeps: int
) -> None:
    """Also where they end early, since one of them changed nothing."""
    bags, prior = a_case(seed, sizes, 2)
    order = np.random.default_rng(seed).permutation(len(sizes))
    at_once = match(bags, prior, Rules(1.0, sweeps, integrated), in_order(*order))
    single = Rules(1.0, 1, integrated)
    places = match(bags, prior, Rules(1.0, 0, integrated), in_order(*order)).places
    for _ in range(sweeps):
        places = match(bags, prior, single, in_order(*order), start=places).places
    assert set(groups(places)) == set(groups(at_once.places))


def test_the_largest_client_comes_first() -> None:
    """A large client has 0 and 2; a small one's 1.2 goes to 2, though it is named before."""
    small = Bag(np.array([[1.2]]), np.ones(1))
    large = Bag(np.array([[0.0], [2.0]]), np.ones(1))
    prior = Prior(np.zeros(1), np.full(1, 1e-3))
    matching = match([small, large], prior, Rules(sweeps=0), np.random.default_rng(0))
    assert [indices.tolist() for indices in matching.places] == [[1], [0, 1]]


def test_more_atoms_with_a_larger_gamma_on_average() -> None:
    """Not in every case."""
    means = []
    for gamma in (1e-6, 1e-2, 1.0, 1e2, 1e6):
        counts = []
        for seed in range(20):
            bags, prior = a_case(seed, [4, 4, 3], 2)
            matching = match(bags, prior, Rules(gamma, 3), np.random.default_rng(0))
            counts.append(len(matching.atoms))
        means.append(np.mean(counts))
    assert means == sorted(means)
    assert means[0] == pytest.approx(4, abs=0.3)
    assert means[-1] == pytest.approx(11, abs=0.3)


def test_matching_changes_none_of_its_arguments() -> None:
    bags, prior = a_case(0, [3, 2, 3], 2)
    start = [np.arange(3), np.arange(2), np.arange(3)]
    before = [(bag.vectors.copy(), bag.precision.copy()) for bag in bags]
    match(bags, prior, Rules(sweeps=2), np.random.default_rng(0), start=start)
    for bag, (vectors, precision) in zip(bags, before, strict=True):
        assert np.array_equal(bag.vectors, vectors)
        assert np.array_equal(bag.precision, precision)
    assert [indices.tolist() for indices in start] == [[0, 1, 2], [0, 1], [0, 1, 2]]


def test_a_start_that_leaves_out_an_atom_is_tidied() -> None:
    """The numbers of a start need not be without gaps once sweeps have gone over them."""
    bags, prior = a_case(1, [2, 2], 2)
    start = [np.array([0, 3]), np.array([3, 5])]
    matching = match(bags, prior, Rules(sweeps=1), in_order(0, 1), start=start)
    assert np.isfinite(matching.atoms).all()
    assert (matching.counts > 0).all()
