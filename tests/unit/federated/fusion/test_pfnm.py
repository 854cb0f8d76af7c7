"""PFNM against a slow one in plain loops, and what its paper promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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

from tacit.core.errors import StudyError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused
from tacit.federated.fusion.pfnm import Pfnm

seeds = st.integers(0, 9999)
depths = st.integers(1, 3)


# The slow one: atoms know their members by name, and every gain is computed anew from them


@dataclass
class Atom:
    first: list[float]  # the prior's mean times its precision
    members: dict[int, int] = field(default_factory=dict)  # which vector of which client


@dataclass
class Slow:
    """One layer: vectors[j][l] with precision precisions[j], both lists of numbers."""

    vectors: list[Any]
    precisions: list[Any]
    mean: list[float]
    s02: float
    gamma: float
    reference: bool = False

    def match(self, order: Sequence[int], sweeps: int, start: Any = None) -> list[Atom]:
        clients = range(len(self.vectors))
        if start is None:
            atoms: list[Atom] = []
            for j in sorted(clients, key=lambda j: -len(self.vectors[j])):
                self.place(j, atoms)
        else:
            first = self.mean if self.reference else [mu / self.s02 for mu in self.mean]
            atoms = [Atom(list(first)) for _ in range(1 + max(max(own) for own in start))]
            for j in clients:
                for number, i in enumerate(start[j]):
                    atoms[i].members[j] = number
        for _ in range(sweeps):
            for j in order:
                for atom in atoms:
                    atom.members.pop(j, None)
                atoms = [atom for atom in atoms if atom.members]
                self.place(j, atoms)
        return atoms

    def place(self, j: int, atoms: list[Atom]) -> None:
        J, own = len(self.vectors), self.vectors[j]
        new = min(len(own), max(700 - len(atoms), 1)) if self.reference else len(own)
        gains = np.zeros((len(own), len(atoms) + new))
        for row, v in enumerate(own):
            for column, atom in enumerate(atoms):
                m = min(len(atom.members), 10) if self.reference else len(atom.members)
                factor = 1 if self.reference else 2
                gains[row, column] = self.gain(j, v, atom) + factor * math.log(m / (J - m))
            for r in range(1, new + 1):
                alone = self.gain(j, v, Atom([mu / self.s02 for mu in self.mean]))
                gains[row, len(atoms) + r - 1] = (
                    alone - 2 * math.log(r) + 2 * math.log(self.gamma / J)
                )
        rows, columns = linear_sum_assignment(gains, maximize=True)
        there = len(atoms)
        for row, column in zip(rows, columns, strict=True):
            if column < there:
                atoms[column].members[j] = row
            else:
                atoms.append(Atom([mu / self.s02 for mu in self.mean], {j: row}))

    def gain(self, j: int, v: Any, atom: Atom) -> float:
        found = 0.0
        for d in range(len(v)):
            top, below = self.sums(atom, d)
            more = self.precisions[j][d]
            found += (top + more * v[d]) ** 2 / (below + more) - top**2 / below
        return found

    def sums(self, atom: Atom, d: int) -> tuple[float, float]:
        top, below = atom.first[d], 1 / self.s02
        for j, number in atom.members.items():
            top += self.precisions[j][d] * self.vectors[j][number][d]
            below += self.precisions[j][d]
        return top, below

    def theta(self, atom: Atom) -> list[float]:
        pairs = [self.sums(atom, d) for d in range(len(self.mean))]
        return [top / below for top, below in pairs]


def slow_pfnm(
    networks: Sequence[Dense],
    order: Sequence[int],
    method: Pfnm,
    counts: Any = None,
    start: Assignment | None = None,
) -> tuple[Dense, list[list[frozenset[tuple[int, int]]]]]:
    """The fused network, and the neurons of each of its own."""
    J, depth, K = len(networks), len(networks[0].widths), networks[0].outputs
    share = [[1.0] * K for _ in range(J)]
    if counts is not None and (method.class_weights or method.reference):
        total = [sum(counts[j][k] for j in range(J)) for k in range(K)]
        share = [[counts[j][k] / total[k] if total[k] else 0.0 for k in range(K)] for j in range(J)]
    bias_mean, s2, s02 = 0.1 if method.reference else 0.0, method.variance, method.prior_variance
    weights: dict[int, Any] = {}
    biases: dict[int, Any] = {}
    partition: list[Any] = [None] * depth
    above: list[Any] = []  # the atoms of the layer above
    for layer in reversed(range(depth)):
        vectors: list[Any] = []
        precisions = []
        for j, network in enumerate(networks):
            own = []
            for neuron in range(network.widths[layer]):
                v = [float(w) for w in network.weights[0][neuron]] if layer == 0 else []
                v.append(float(network.biases[layer][neuron]))
                if layer == depth - 1:
                    v += [float(network.weights[-1][k][neuron]) for k in range(K)]
                else:
                    for atom in above:
                        mine = atom.members.get(j)
                        v.append(
                            0.0 if mine is None else float(network.weights[layer + 1][mine][neuron])
                        )
                own.append(v)
            vectors.append(own)
            precision = [1 / s2] * len(own[0])
            if layer == depth - 1:
                for k in range(K):
                    precision[len(precision) - K + k] *= share[j][k]
            precisions.append(precision)
        before = networks[0].inputs if layer == 0 else 0
        mean = [0.0] * len(vectors[0][0])
        mean[before] = bias_mean
        slow = Slow(vectors, precisions, mean, s02, method.gamma, method.reference)
        above = slow.match(order, method.sweeps, None if start is None else start[layer])
        thetas = np.array([slow.theta(atom) for atom in above])
        biases[layer], weights[layer + 1] = thetas[:, before], thetas[:, before + 1 :].T
        if layer == 0:
            weights[0] = thetas[:, :before]
        partition[layer] = [frozenset(atom.members.items()) for atom in above]
    out = []
    for k in range(K):
        top, below = bias_mean / s02, 1 / s02
        for j in range(J):
            top += share[j][k] / s2 * networks[j].biases[-1][k]
            below += share[j][k] / s2
        out.append(top / below)
    biases[depth] = np.array(out)
    return Dense(
        tuple(weights[c] for c in range(depth + 1)), tuple(biases[c] for c in range(depth + 1))
    ), partition


def assert_as_slow(found: Fused, slow: tuple[Dense, list[Any]]) -> None:
    """The same neurons together, and the same weights, in whatever order."""
    network, partition = slow
    places = []
    for layer, expected in zip(found.assignment, partition, strict=True):
        mine = groups(layer)
        assert set(mine) == set(expected)
        places.append(np.array([mine.index(members) for members in expected]))
    assert found.network.widths == network.widths
    weights, biases = list(found.network.weights), list(found.network.biases)
    for layer, order in enumerate(places):
        weights[layer], biases[layer] = weights[layer][order], biases[layer][order]
        weights[layer + 1] = weights[layer + 1][:, order]
    assert_networks_agree(Dense(tuple(weights), tuple(biases)), network, rtol=1e-9, atol=1e-9)


@st.composite
def families(draw: st.DrawFn, most: int = 5) -> list[Dense]:
    """Related and unrelated networks, of different widths."""
    depth, clients = draw(depths), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(seeds))
    widths = rng.integers(1, most + 1, (clients, depth)).tolist()
    return relatives(widths, rng, draw(st.sampled_from([0.1, 0.5, 2.0])))


methods = st.builds(
    Pfnm,
    variance=st.floats(0.05, 2),
    prior_variance=st.floats(0.05, 5),
    gamma=st.floats(0.1, 20),
    sweeps=st.integers(0, 3),
    class_weights=st.booleans(),
    reference=st.booleans(),
)


@given(families(), methods, seeds)
@settings(max_examples=100)
def test_pfnm_is_the_slow_one(networks: list[Dense], method: Pfnm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(networks)).tolist()
    counts = rng.integers(0, 4, (len(networks), 2)).astype(float)
    found = method.fuse(networks, in_order(*order), counts=counts)
    assert_as_slow(found, slow_pfnm(networks, order, method, counts))


@given(families(4), methods, seeds)
@settings(max_examples=40)
def test_a_second_round_is_the_slow_one(networks: list[Dense], method: Pfnm, seed: int) -> None:
    """It goes on from known places; the authors' code has the prior's mean where that times its precision should be."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(networks)).tolist()
    counts = rng.integers(0, 4, (len(networks), 2)).astype(float)
    start = method.fuse(networks, in_order(*order), counts=counts).assignment
    moved = [
        changed(network, lambda array: array + rng.normal(0, 0.3, array.shape))
        for network in networks
    ]
    found = method.fuse(moved, in_order(*order), counts=counts, start=start)
    assert_as_slow(found, slow_pfnm(moved, order, method, counts, start))


@pytest.mark.parametrize("seed", [165, 394])
def test_the_authors_sweeps_go_on_where_one_has_changed_nothing(seed: int) -> None:
    """Clients' own atoms are made anew, without the mistake of the start, and then others see them otherwise."""
    rng = np.random.default_rng(seed)
    networks = relatives([[2], [2], [2]], rng, 0.5)
    method = Pfnm(
        reference=True,
        variance=0.3,
        prior_variance=0.05,
        gamma=float(rng.uniform(0.1, 3)),
        sweeps=2,
    )
    start = replace(method, sweeps=3).fuse(networks, in_order(0, 1, 2)).assignment
    for order in ([0], [0, 1], [0, 1, 2]):
        once = replace(method, sweeps=1).fuse(networks, in_order(*order), start=start)
        assert set(groups(once.assignment[0])) == set(groups(start[0]))
    twice = method.fuse(networks, in_order(0, 1, 2), start=start)
    assert set(groups(twice.assignment[0])) != set(groups(start[0]))
    assert_as_slow(twice, slow_pfnm(networks, [0, 1, 2], method, None, start))


@pytest.mark.parametrize("reference", [True, False])
def test_popular_neurons_of_many_clients_are_counted_as_the_slow_one_does(reference: bool) -> None:
    """Of thirteen clients more than ten share an atom, so the authors' cap matters."""
    rng = np.random.default_rng(3)
    networks = relatives([[int(width)] for width in rng.integers(2, 4, 13)], rng, 1.0)
    method = Pfnm(reference=reference, sweeps=2, variance=1.0, prior_variance=2.0)
    order = rng.permutation(13).tolist()
    found = method.fuse(networks, in_order(*order))
    assert max(len(members) for members in groups(found.assignment[0])) > 10
    assert_as_slow(found, slow_pfnm(networks, order, method))


def strangers(widths: Sequence[int]) -> list[Dense]:
    """Networks without anything in common."""
    rng = np.random.default_rng(0)
    return [changed(a_network([width], rng, 2, 1), lambda array: 20 * array) for width in widths]


def test_the_authors_code_makes_at_most_700_neurons() -> None:
    networks = strangers([400, 380])
    for reference, width in ((False, 780), (True, 700)):
        method = Pfnm(prior_variance=1e3, sweeps=1, gamma=1e6, reference=reference)
        assert method.fuse(networks, in_order(0, 1)).network.widths == (width,)


@pytest.mark.parametrize("sweeps", [0, 1])
def test_a_client_with_more_than_700_neurons_keeps_them_all(sweeps: int) -> None:
    networks = strangers([710, 20])
    found = Pfnm(prior_variance=1e3, reference=True, sweeps=sweeps).fuse(networks, in_order(1, 0))
    for network, own in zip(networks, found.assignment[0], strict=True):
        assert len(set(own.tolist())) == len(own) == network.widths[0]
    assert 710 <= found.network.widths[0] <= 711


# What the paper promises


@given(families(), methods, seeds)
@settings(max_examples=40)
def test_widths_are_between_the_largest_client_and_all_and_matches_one_to_one(
    networks: list[Dense], method: Pfnm, seed: int
) -> None:
    counts = np.ones((len(networks), 2))
    found = method.fuse(networks, np.random.default_rng(seed), counts=counts)
    for layer, width in enumerate(found.network.widths):
        widths = [network.widths[layer] for network in networks]
        assert max(widths) <= width <= sum(widths)
        for own, size in zip(found.assignment[layer], widths, strict=True):
            assert len(set(own.tolist())) == len(own) == size
            assert 0 <= own.min() <= own.max() < width


@given(families(), methods, seeds, st.booleans())
@settings(max_examples=100)
def test_the_order_of_a_clients_neurons_changes_nothing(
    networks: list[Dense], method: Pfnm, seed: int, everybody: bool
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, (len(networks), 2)).astype(float)
    who = range(len(networks)) if everybody else [int(rng.integers(len(networks)))]
    layers = None if everybody else [int(rng.integers(len(networks[0].widths)))]
    others, names = (
        list(networks),
        [[np.arange(width) for width in network.widths] for network in networks],
    )
    for client in who:
        others[client], names[client] = shuffled(networks[client], rng, layers)
    one = method.fuse(networks, np.random.default_rng(seed), counts=counts)
    other = method.fuse(others, np.random.default_rng(seed), counts=counts)
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(
        answers(one.network, x), answers(other.network, x), rtol=1e-9, atol=1e-9
    )
    for layer, (mine, theirs) in enumerate(zip(one.assignment, other.assignment, strict=True)):
        assert set(groups(mine)) == set(groups(theirs, [own[layer] for own in names]))


@given(
    seeds,
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 5),
    st.floats(0.02, 0.5),
)
@settings(max_examples=40)
def test_copies_in_any_order_give_back_the_network_shrunk_by_the_prior(
    seed: int, widths: list[int], copies: int, variance: float
) -> None:
    rng = np.random.default_rng(seed)
    network = changed(a_network(widths, rng), lambda array: 3 * array)
    method = Pfnm(variance=variance, prior_variance=0.7)
    found = method.fuse([shuffled(network, rng)[0] for _ in range(copies)], rng)
    assert found.network.widths == tuple(widths)
    factor = (copies / variance) / (1 / 0.7 + copies / variance)
    shrunk = changed(network, lambda array: factor * array)
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(answers(found.network, x), answers(shrunk, x), rtol=1e-9, atol=1e-9)
    pairs = zip(
        (*found.network.weights, *found.network.biases),
        (*shrunk.weights, *shrunk.biases),
        strict=True,
    )
    for mine, theirs in pairs:
        np.testing.assert_allclose(np.sort(mine, None), np.sort(theirs, None), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("widths", [[6], [5, 4], [4, 3, 5]])
def test_copies_shrink_by_the_default_settings_too(widths: list[int]) -> None:
    """Three copies, both variances 0.1: 30 / (10 + 30)."""
    rng = np.random.default_rng(1)
    network = a_network(widths, rng)
    found = Pfnm().fuse([network] * 3, rng)
    back = found.part(0)  # its neurons in their old order
    assert_networks_agree(back, changed(network, lambda array: 0.75 * array), rtol=1e-12)
    assert found.network.widths == tuple(widths)


@pytest.mark.parametrize("widths", [[6], [5, 4]])
def test_a_vague_prior_gives_exactly_the_network(widths: list[int]) -> None:
    rng = np.random.default_rng(2)
    network = a_network(widths, rng)
    found = Pfnm(variance=1e-3, prior_variance=1e9).fuse(
        [shuffled(network, rng)[0] for _ in range(3)], rng
    )
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(answers(found.network, x), answers(network, x), rtol=1e-9)


def test_a_larger_gamma_makes_more_neurons_on_average() -> None:
    means = []
    for gamma in (1e-5, 1.0, 1e5):
        rng = np.random.default_rng(0)
        found = [
            Pfnm(gamma=gamma).fuse(relatives([[4], [3], [4]], rng, 0.5), rng).network.widths[0]
            for _ in range(20)
        ]
        means.append(np.mean(found))
    assert means[0] < means[1] < means[2]


def test_noisy_relatives_are_recognised() -> None:
    """Small noise: the true neurons come out, whoever has them."""
    rng = np.random.default_rng(5)
    large = a_network([8], rng)
    parts = [rng.permutation(8)[:n] for n in (6, 5, 8)]
    networks = [
        changed(large.part([own]), lambda array: array + rng.normal(0, 0.02, array.shape))
        for own in parts
    ]
    found = Pfnm(variance=1e-3, prior_variance=1.0).fuse(networks, rng)
    assert set(groups(found.assignment[0])) == set(groups(parts))
    x = rng.normal(size=(50, 3))
    assert np.abs(answers(found.network, x) - answers(large, x)).max() < 0.3


# Class weights


def test_a_clients_weights_to_a_class_count_by_its_share_of_the_class() -> None:
    """One neuron, all variances 1, shares 3/4 and 1/4 of one class, all and nothing of the other."""
    one = Dense(
        (np.array([[1.0]]), np.array([[2.0], [5.0]])), (np.array([1.0]), np.array([4.0, 8.0]))
    )
    two = Dense(
        (np.array([[3.0]]), np.array([[6.0], [7.0]])), (np.array([2.0]), np.array([0.0, 9.0]))
    )
    counts = np.array([[30.0, 7.0], [10.0, 0.0]])
    method = Pfnm(variance=1.0, prior_variance=1.0, gamma=1e-9, class_weights=True)
    found = method.fuse([one, two], np.random.default_rng(0), counts=counts).network
    assert found.widths == (1,)
    assert found.weights[0].item() == pytest.approx((1 + 3) / 3)
    assert found.biases[0].item() == pytest.approx((1 + 2) / 3)
    assert found.weights[1].ravel().tolist() == pytest.approx([(0.75 * 2 + 0.25 * 6) / 2, 5 / 2])
    assert found.biases[1].tolist() == pytest.approx([0.75 * 4 / 2, 8 / 2])


@pytest.mark.parametrize("reference", [False, True])
def test_a_class_that_nobody_has_keeps_the_priors_weights(reference: bool) -> None:
    rng = np.random.default_rng(0)
    counts = np.array([[3.0, 0.0], [5.0, 0.0]])
    method = Pfnm(class_weights=True, reference=reference)
    found = method.fuse(relatives([[3], [4]], rng), rng, counts=counts).network
    assert np.isfinite(found.weights[1]).all()
    assert (found.weights[1][1] == 0).all()
    assert found.biases[1][1] == pytest.approx(0.1 if reference else 0.0)
    assert (found.weights[1][0] != 0).all()


def test_shares_and_not_numbers_of_samples_count() -> None:
    rng = np.random.default_rng(0)
    networks, counts = relatives([[3], [4]], rng), np.array([[3.0, 2.0], [5.0, 1.0]])
    method = Pfnm(class_weights=True)
    one = method.fuse(networks, in_order(0, 1), counts=counts)
    other = method.fuse(networks, in_order(0, 1), counts=counts * [100, 7])
    assert_networks_agree(one.network, other.network, rtol=1e-12)


def test_classes_count_alike_unless_asked_for() -> None:
    rng = np.random.default_rng(0)
    networks, counts = relatives([[3], [4]], rng), np.array([[3.0, 2.0], [5.0, 1.0]])
    one, other = (Pfnm().fuse(networks, in_order(0, 1), counts=given) for given in (counts, None))
    assert_networks_agree(one.network, other.network, rtol=0)
    weighted = Pfnm(class_weights=True).fuse(networks, in_order(0, 1), counts=counts)
    assert not np.allclose(weighted.network.biases[1], one.network.biases[1])


def test_class_weights_without_counts_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(StudyError, match="class_weights needs counts"):
        Pfnm(class_weights=True).fuse(relatives([[3], [4]], rng), rng)


@pytest.mark.parametrize(
    "wrong",
    [
        {"variance": 0.0},
        {"prior_variance": -1.0},
        {"gamma": 0.0},
        {"sweeps": -1},
        {"gamma": float("inf")},
        {"prior_variance": float("nan")},
        {"variance": 1e-320},
        {"prior_variance": 1e16, "class_weights": True},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(StudyError, match=rf"pfnm\.{name}: expected"):
        Pfnm(**wrong)


def test_fusing_changes_no_network() -> None:
    rng = np.random.default_rng(0)
    networks = relatives([[3, 2], [4, 2]], rng)
    before: list[list[Floats]] = [[a.copy() for a in (*n.weights, *n.biases)] for n in networks]
    Pfnm(reference=True).fuse(networks, rng, counts=np.ones((2, 2)))
    for network, arrays in zip(networks, before, strict=True):
        for array, old in zip((*network.weights, *network.biases), arrays, strict=True):
            assert np.array_equal(array, old)


@pytest.mark.parametrize(
    ("outputs", "shrink", "factor"),
    [(1, None, 1), (2, None, 3 / 4), (1, True, 3 / 4), (2, False, 1)],
)
def test_numbers_are_not_drawn_to_zero_unless_asked_for(
    outputs: int, shrink: bool | None, factor: float
) -> None:
    """Three copies, and as much noise as prior: each weight is 3 / (3 + 1) of its mean, or the mean."""
    network = a_network([4, 3], np.random.default_rng(0), outputs=outputs)
    fused = Pfnm(shrink=shrink).fuse([network] * 3, np.random.default_rng(0)).network
    assert fused.widths == (4, 3)
    for ours, theirs in zip(
        (*fused.weights, *fused.biases), (*network.weights, *network.biases), strict=True
    ):
        assert np.sort(ours.ravel()) == pytest.approx(np.sort(factor * theirs.ravel()))


def test_a_class_that_a_neuron_knows_nothing_of_gets_no_weight() -> None:
    networks = [a_network([3], np.random.default_rng(seed)) for seed in range(2)]
    counts = np.array([[5.0, 0], [5, 0]])  # nobody has the second class
    fused = (
        Pfnm(class_weights=True, shrink=False)
        .fuse(networks, np.random.default_rng(0), counts=counts)
        .network
    )
    assert fused.weights[-1][1] == pytest.approx(np.zeros(fused.widths[0]))
    assert fused.biases[-1][1] == 0
    assert np.isfinite(fused.weights[-1]).all()
