"""Matching against the model that it is derived from: exact posteriors and marginals, and every assignment there is."""

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
    """The log-density of an atom's members and of the atom itself, where that is best. # (m, D), (m, D)"""
    theta = np.average(
        np.vstack([vectors, prior.mean]), axis=0, weights=np.vstack([precisions, prior.precision])
    )  # the mode of a product of Gaussians
    noise = norm.logpdf(vectors, theta, 1 / np.sqrt(precisions)).sum()
    return float(noise + norm.logpdf(theta, prior.mean, 1 / np.sqrt(prior.precision)).sum())


def marginal(vectors: Floats, precisions: Floats, prior: Prior) -> float:
    """The log-density of an atom's members, whatever the atom is: copies of one thing have its variance in common."""
    found = 0.0
    for d, mean in enumerate(prior.mean):
        cov = np.full((len(vectors), len(vectors)), 1 / prior.precision[d]) + np.diag(
            1 / precisions[:, d]
        )
        found += float(multivariate_normal.logpdf(vectors[:, d], np.full(len(vectors), mean), cov))
    return found


def shared(counts: Floats, clients: int, gamma: float) -> float:
    """The log-probability of an Indian buffet's dishes, each with its own name, that so many have taken."""
    counts = np.asarray(counts, float)
    terms = gammaln(counts) + gammaln(clients - counts + 1) - gammaln(clients + 1) + math.log(gamma)
    return float(terms[counts > 0].sum())


def objective(
    bags: list[Bag], places: Any, prior: Prior, gamma: float, integrated: bool, client: int
) -> float:
    """What one client's assignment maximises, the others' being fixed: twice the log of posterior or marginal.

    The normaliser of atoms is left out of the posterior, as in the paper. Of the client's own new atoms, all orders
    are the same.
    """
    found, counts = 0.0, []
    normaliser = 0.0 if integrated else norm.logpdf(0, 0, 1 / np.sqrt(prior.precision)).sum()
    for members in groups(places):
        vectors = np.array([bags[j].vectors[number] for j, number in members])
        precisions = np.array([bags[j].precision for j, _ in members])
        found += (marginal if integrated else profiled)(vectors, precisions, prior) - normaliser
        counts.append(len(members))
    alone = sum(
        members <= {(client, k) for k in range(len(places[client]))} for members in groups(places)
    )
    return 2 * (found + shared(np.array(counts), len(bags), gamma) - gammaln(alone + 1))


def a_case(seed: int, sizes: list[int], size: int) -> tuple[list[Bag], Prior]:
    """Bags with a precision for every client and dimension, and a prior with a mean."""
    rng = np.random.default_rng(seed)
    bags = [Bag(rng.normal(0.5, 1.5, (n, size)), rng.uniform(0.3, 4, size)) for n in sizes]
    return bags, Prior(rng.normal(size=size), rng.uniform(0.2, 3, size))


def some_places(rng: np.random.Generator, sizes: list[int], atoms: int) -> list[Any]:
    """Each client's vectors at different atoms, none of which is empty."""
    found = [rng.permutation(max(atoms, n))[:n] for n in sizes]
    used = np.unique(np.concatenate(found))
    return [np.searchsorted(used, own) for own in found]


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
    others = some_places(rng, sizes[1:], 5)
    atoms = Atoms.of(bags[1:], others, prior)
    known, alone = costs(bags[0], atoms, prior, clients, Rules(gamma, integrated=integrated))
    density = marginal if integrated else profiled
    dropped = 0.0 if integrated else float(np.log(2 * np.pi / prior.precision).sum())
    expected = np.zeros((sizes[0], len(atoms.counts) + 1))
    for row, v in enumerate(bags[0].vectors):
        for column, members in enumerate(groups(others)):
            there = np.array([bags[1 + j].vectors[k] for j, k in members])
            precisions = np.array([bags[1 + j].precision for j, _ in members])
            after = density(
                np.vstack([there, v]), np.vstack([precisions, bags[0].precision]), prior
            )
            more = shared([len(members) + 1], clients, gamma) - shared(
                [len(members)], clients, gamma
            )
            expected[row, column] = 2 * (after - density(there, precisions, prior) + more)
        one = density(v[None], bags[0].precision[None], prior) + shared([1], clients, gamma)
        expected[row, -1] = 2 * one + dropped
    gap = expected + np.column_stack([known, alone])
    assert np.ptp(gap, axis=1).max() < 1e-9


@given(seeds, st.integers(1, 5), st.integers(2, 6))
def test_integrated_gains_are_the_closed_form(seed: int, size: int, clients: int) -> None:
    """l(S, m) of the specification, with the same noise for all."""
    rng = np.random.default_rng(seed)
    s2, s02, mu0 = rng.uniform(0.1, 2, size), rng.uniform(0.1, 2, size), rng.normal(size=size)

    def score(S: Floats, m: int) -> float:
        top = s02 / s2 * S**2 + 2 * mu0 * S - m * mu0**2
        return float((top / (m * s02 + s2) - np.log(m * s02 + s2)).sum())

    prior, gamma = Prior(mu0, 1 / s02), rng.uniform(0.1, 5)
    bags = [Bag(rng.normal(size=(3, size)), 1 / s2) for _ in range(clients)]
    others = some_places(rng, [3] * (clients - 1), 4)
    atoms = Atoms.of(bags[1:], others, prior)
    known, alone = costs(bags[0], atoms, prior, clients, Rules(gamma, integrated=True))
    for row, v in enumerate(bags[0].vectors):
        for column, members in enumerate(groups(others)):
            S, m = np.sum([bags[1 + j].vectors[k] for j, k in members], axis=0), len(members)
            gain = score(S + v, m + 1) - score(S, m) + 2 * math.log(m / (clients - m))
            assert -known[row, column] == pytest.approx(gain, abs=1e-9)
        gain = score(v, 1) + np.log(s2).sum() + 2 * math.log(gamma / clients)
        assert -alone[row] == pytest.approx(gain, abs=1e-9)


def test_gains_of_one_number_by_hand() -> None:
    """Prior N(1, 1/2), an atom with one member 3 of precision 4, and a vector 2 of precision 1, among three clients."""
    prior, bag = Prior(np.array([1.0]), np.array([2.0])), Bag(np.array([[2.0]]), np.array([1.0]))
    atoms = Atoms.of([Bag(np.array([[3.0]]), np.array([4.0]))], [np.array([0])], prior)
    first = (2 + 12 + 2) ** 2 / (2 + 4 + 1) - (2 + 12) ** 2 / (2 + 4)
    assert gains(bag, atoms).item() == pytest.approx(first)
    assert gains(bag, atoms, integrated=True).item() == pytest.approx(first + math.log(6 / 7))
    known, alone = costs(bag, atoms, prior, 3, Rules(gamma=6.0))
    assert known.item() == pytest.approx(-first - 2 * math.log(1 / 2))
    assert alone.item() == pytest.approx(-((2 + 2) ** 2 / 3 - 2**2 / 2) - 2 * math.log(2))
    known, _ = costs(bag, atoms, prior, 3, Rules(popularity=1.0))
    assert known.item() == pytest.approx(-first - math.log(1 / 2))


def test_a_count_is_capped_where_the_rules_say_so() -> None:
    """Eleven of thirteen clients count as ten: log(10 / 3)."""
    prior, bag = Prior(np.zeros(1), np.ones(1)), Bag(np.ones((1, 1)), np.ones(1))
    atoms = Atoms.of([bag] * 11, [np.zeros(1, np.int64)] * 11, prior)
    rules = {"capped": Rules(most_counted=10), "whole": Rules()}
    found = {name: -costs(bag, atoms, prior, 13, rule)[0].item() for name, rule in rules.items()}
    assert found["whole"] - found["capped"] == pytest.approx(
        2 * math.log(11 / 2) - 2 * math.log(10 / 3)
    )


# The best assignment


def price(known: Floats, alone: Floats, columns: Any) -> float:
    new = columns >= known.shape[1]
    return float(known[~new, columns[~new]].sum() + alone[new].sum() + 2 * gammaln(new.sum() + 1))


def least_price(known: Floats, alone: Floats, most_new: int) -> float:
    """Over all ways to assign the rows."""
    size, there = known.shape
    best = math.inf
    for choice in itertools.product(range(there + 1), repeat=size):
        old = [c for c in choice if c < there]
        if len(set(old)) == len(old) and size - len(old) <= most_new:
            best = min(best, price(known, alone, np.array(choice)))
    return best


def check_columns(known: Floats, alone: Floats, most_new: int | None, columns: Any) -> None:
    assert len(columns) == len(known)
    assert len(set(columns.tolist())) == len(columns)
    assert (columns >= known.shape[1]).sum() <= (len(known) if most_new is None else most_new)


def a_problem(seed: int, size: int, there: int, lean: float, ties: bool) -> tuple[Floats, Floats]:
    """Costs of known and of new atoms; `lean` makes the new ones dearer."""
    rng = np.random.default_rng(seed)
    known, alone = rng.normal(0, 3, (size, there)), rng.normal(0, 3, size) + lean
    return (known.round(), alone.round()) if ties else (known, alone)


leans = st.sampled_from([-50.0, -3.0, -1.0, 0.0, 3.0, 50.0])


@given(seeds, st.integers(1, 4), st.integers(0, 5), leans, st.booleans(), st.integers(0, 5))
@settings(max_examples=150)
def test_an_assignment_costs_the_least_of_all(
    seed: int, size: int, there: int, lean: float, ties: bool, limit: int
) -> None:
    known, alone = a_problem(seed, size, there, lean, ties)
    for most_new in (None, max(limit, 1, size - there)):
        found = assign(known, alone, most_new)
        check_columns(known, alone, most_new, found)
        expected = least_price(known, alone, size if most_new is None else most_new)
        assert price(known, alone, found) == pytest.approx(expected, abs=1e-9)


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
    seed: int, size: int, there: int, lean: float, ties: bool, limit: int
) -> None:
    known, alone = a_problem(seed, size, there, lean, ties)
    for most_new in (None, max(limit, size - there, 1)):
        most = size if most_new is None else min(size, most_new)
        matrix = np.hstack([known, alone[:, None] + 2 * np.log(np.arange(1, most + 1))])
        found = assign(known, alone, most_new)
        check_columns(known, alone, most_new, found)
        expected = matrix[linear_sum_assignment(matrix)].sum()
        assert price(known, alone, found) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("lean", [-1e6, 1e6])
def test_all_new_and_all_known_are_found(lean: float) -> None:
    known, alone = a_problem(0, 30, 40, lean, False)
    assert ((assign(known, alone) >= 40) == (lean < 0)).all()


def test_without_known_atoms_everything_is_new() -> None:
    assert sorted(assign(np.zeros((7, 0)), np.ones(7))) == list(range(7))


# Matching


widths = st.lists(st.integers(1, 5), min_size=2, max_size=4)


@given(seeds, widths, st.booleans(), st.floats(0.05, 50), st.integers(0, 3))
@settings(max_examples=60)
def test_atoms_are_between_the_largest_client_and_all_vectors_and_one_to_one(
    seed: int, sizes: list[int], integrated: bool, gamma: float, sweeps: int
) -> None:
    bags, prior = a_case(seed, sizes, 2)
    found = match(bags, prior, Rules(gamma, sweeps, integrated), np.random.default_rng(seed))
    assert max(sizes) <= len(found.atoms) <= sum(sizes)
    for own, n in zip(found.places, sizes, strict=True):
        assert len(set(own.tolist())) == n == len(own)
    together = np.concatenate(found.places)
    assert sorted(set(together.tolist())) == list(range(len(found.atoms)))  # none is empty
    assert found.counts.tolist() == np.bincount(together).tolist()


@given(seeds, widths, st.integers(0, 3))
@settings(max_examples=60)
def test_an_atom_is_the_stated_estimate(seed: int, sizes: list[int], sweeps: int) -> None:
    bags, prior = a_case(seed, sizes, 3)
    found = match(bags, prior, Rules(sweeps=sweeps), np.random.default_rng(seed))
    for atom, members in zip(found.atoms, groups(found.places), strict=True):
        S = sum(bags[j].precision * bags[j].vectors[k] for j, k in members)
        P = sum(bags[j].precision for j, _ in members)
        np.testing.assert_allclose(
            atom, (prior.mean * prior.precision + S) / (prior.precision + P), atol=1e-10
        )


def every_assignment(sizes: int, there: int) -> list[Any]:
    """All one-to-one assignments of a client's vectors to others' atoms, or to new ones."""
    found = []
    for choice in itertools.product(range(there + 1), repeat=sizes):
        old = [c for c in choice if c < there]
        if len(set(old)) == len(old):
            fresh = itertools.count(there)
            found.append(np.array([c if c < there else next(fresh) for c in choice]))
    return found


@given(
    seeds, st.lists(st.integers(1, 3), min_size=2, max_size=4), st.booleans(), st.floats(0.1, 20)
)
@settings(max_examples=40)
def test_a_client_that_is_matched_again_finds_the_best_of_all_places(
    seed: int, sizes: list[int], integrated: bool, gamma: float
) -> None:
    """So a step never lowers the objective of the client that takes it, the hyper-parameters being fixed."""
    rng = np.random.default_rng(seed)
    bags, prior = a_case(seed, sizes, 2)
    places = some_places(rng, sizes, 4)
    client = int(rng.integers(len(sizes)))
    found = match(bags, prior, Rules(gamma, 1, integrated), in_order(client), start=places)

    def value(own: Any) -> float:
        return objective(bags, own, prior, gamma, integrated, client)

    others = [np.asarray(own) for own in places]
    others[client] = others[client][:0]
    used = np.unique(np.concatenate(others)) if sum(map(len, others)) else np.zeros(0)
    others = [np.searchsorted(used, own) for own in others]
    best = max(
        value([*others[:client], own, *others[client + 1 :]])
        for own in every_assignment(sizes[client], len(used))
    )
    assert value(found.places) == pytest.approx(best, abs=1e-8)
    assert best >= value(places) - 1e-9
    unmoved = [j for j in range(len(sizes)) if j != client]
    assert set(groups([found.places[j] for j in unmoved])) == set(
        groups([places[j] for j in unmoved])
    )


@given(seeds, widths, st.booleans(), st.integers(1, 8))
@settings(max_examples=40)
def test_many_sweeps_are_one_after_another(
    seed: int, sizes: list[int], integrated: bool, sweeps: int
) -> None:
    """Also where they end early, since one of them changed nothing."""
    bags, prior = a_case(seed, sizes, 2)
    order = np.random.default_rng(seed).permutation(len(sizes))
    whole = match(bags, prior, Rules(1.0, sweeps, integrated), in_order(*order))
    found = match(bags, prior, Rules(1.0, 0, integrated), in_order(*order))
    for _ in range(sweeps):
        found = match(bags, prior, Rules(1.0, 1, integrated), in_order(*order), start=found.places)
    assert set(groups(found.places)) == set(groups(whole.places))


def test_the_largest_client_comes_first() -> None:
    """Vectors at 0 and 2 of a large client; a small one's 1.2 goes to the nearer, though it is named before."""
    bags = [Bag(np.array([[1.2]]), np.ones(1)), Bag(np.array([[0.0], [2.0]]), np.ones(1))]
    found = match(
        bags, Prior(np.zeros(1), np.full(1, 1e-3)), Rules(sweeps=0), np.random.default_rng(0)
    )
    assert [own.tolist() for own in found.places] == [[1], [0, 1]]


def test_more_atoms_with_a_larger_gamma_on_average() -> None:
    """Not in every case."""
    means = []
    for gamma in (1e-6, 1e-2, 1.0, 1e2, 1e6):
        cases = [a_case(seed, [4, 4, 3], 2) for seed in range(20)]
        found = [match(*case, Rules(gamma, 3), np.random.default_rng(0)) for case in cases]
        means.append(np.mean([len(one.atoms) for one in found]))
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
    assert [own.tolist() for own in start] == [[0, 1, 2], [0, 1], [0, 1, 2]]


def test_a_start_that_leaves_out_an_atom_is_tidied() -> None:
    """The numbers of a start need not be without gaps once sweeps have gone over them."""
    bags, prior = a_case(1, [2, 2], 2)
    found = match(
        bags, prior, Rules(sweeps=1), in_order(0, 1), start=[np.array([0, 3]), np.array([3, 5])]
    )
    assert np.isfinite(found.atoms).all()
    assert (found.counts > 0).all()
