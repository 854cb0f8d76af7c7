"""PFNM against a slow one in plain loops, and what its paper promises."""

from __future__ import annotations

import copy
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
            last = max(max(indices) for indices in start)
            atoms = [Atom(list(first)) for _ in range(last + 1)]
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
        J = len(self.vectors)
        size = len(self.vectors[j])
        new = size
        if self.reference:
            new = min(size, max(700 - len(atoms), 1))
        gains = np.zeros((size, len(atoms) + new))
        for row, v in enumerate(self.vectors[j]):
            for column, atom in enumerate(atoms):
                m = min(len(atom.members), 10) if self.reference else len(atom.members)
                factor = 1 if self.reference else 2
                gains[row, column] = self.gain(j, v, atom) + factor * math.log(m / (J - m))
            alone = self.gain(j, v, self.new_atom())
            for r in range(1, new + 1):
                price = 2 * math.log(self.gamma / J) - 2 * math.log(r)
                gains[row, len(atoms) + r - 1] = alone + price
        rows, columns = linear_sum_assignment(gains, maximize=True)
        before = len(atoms)
        for row, column in zip(rows, columns, strict=True):
            if column < before:
                atoms[column].members[j] = row
            else:
                atom = self.new_atom()
                atom.members[j] = row
                atoms.append(atom)

    def new_atom(self) -> Atom:
        return Atom([mu / self.s02 for mu in self.mean])

    def gain(self, j: int, v: Any, atom: Atom) -> float:
        gain = 0.0
        for d in range(len(v)):
            top, below = self.sums(atom, d)
            p = self.precisions[j][d]
            gain += (top + p * v[d]) ** 2 / (below + p) - top**2 / below
        return gain

    def sums(self, atom: Atom, d: int) -> tuple[float, float]:
        top = atom.first[d]
        below = 1 / self.s02
        for j, number in atom.members.items():
            top += self.precisions[j][d] * self.vectors[j][number][d]
            below += self.precisions[j][d]
        return top, below

    def theta(self, atom: Atom) -> list[float]:
        pairs = [self.sums(atom, d) for d in range(len(self.mean))]
        return [top / below for top, below in pairs]


def slow_shares(networks: Sequence[Dense], method: Pfnm, counts: Any) -> list[list[float]]:
    """How much each client's weights to each output count."""
    J = len(networks)
    K = networks[0].outputs
    share = [[1.0] * K for _ in range(J)]
    if counts is not None and (method.class_weights or method.reference):
        for k in range(K):
            total = sum(counts[j][k] for j in range(J))
            for j in range(J):
                share[j][k] = counts[j][k] / total if total else 0.0
    return share


def slow_neuron(network: Dense, layer: int, neuron: int, client: int, above: Any) -> list[float]:
    """Its incoming weights, bias and outgoing weights; `above` are the atoms of the layer above."""
    v: list[float] = []
    if layer == 0:
        v += network.weights[0][neuron].tolist()
    v.append(float(network.biases[layer][neuron]))
    if layer == len(network.widths) - 1:
        return v + network.weights[-1][:, neuron].tolist()
    for atom in above:
        weight = 0.0
        if client in atom.members:
            weight = float(network.weights[layer + 1][atom.members[client]][neuron])
        v.append(weight)
    return v


def slow_pfnm(
    networks: Sequence[Dense],
    order: Sequence[int],
    method: Pfnm,
    counts: Any = None,
    start: Assignment | None = None,
) -> tuple[Dense, list[list[frozenset[tuple[int, int]]]]]:
    """The fused network, and which clients' neurons each of its neurons is made of."""
    depth = len(networks[0].widths)
    K = networks[0].outputs
    share = slow_shares(networks, method, counts)
    bias_mean = 0.1 if method.reference else 0.0
    s2 = method.variance
    s02 = method.prior_variance
    weights: dict[int, Any] = {}
    biases: dict[int, Any] = {}
    partition: list[Any] = [None] * depth
    above: list[Any] = []  # the atoms of the layer above
    for layer in reversed(range(depth)):
        vectors: list[Any] = []
        precisions = []
        for j, network in enumerate(networks):
            neurons = range(network.widths[layer])
            vectors.append([slow_neuron(network, layer, i, j, above) for i in neurons])
            precision = [1 / s2] * len(vectors[j][0])
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
        biases[layer] = thetas[:, before]
        weights[layer + 1] = thetas[:, before + 1 :].T
        if layer == 0:
            weights[0] = thetas[:, :before]
        partition[layer] = [frozenset(atom.members.items()) for atom in above]
    biases[depth] = np.zeros(K)
    for k in range(K):
        top = bias_mean / s02
        below = 1 / s02
        for j, network in enumerate(networks):
            top += share[j][k] / s2 * network.biases[-1][k]
            below += share[j][k] / s2
        biases[depth][k] = top / below
    layers = range(depth + 1)
    network = Dense(tuple(weights[c] for c in layers), tuple(biases[c] for c in layers))
    return network, partition


def assert_as_slow(fused: Fused, slow: tuple[Dense, list[Any]]) -> None:
    """The same neurons together, and the same weights, in whatever order."""
    network, partition = slow
    orders = []
    for layer, expected in zip(fused.assignment, partition, strict=True):
        members_of_atoms = groups(layer)
        assert set(members_of_atoms) == set(expected)
        orders.append(np.array([members_of_atoms.index(members) for members in expected]))
    assert fused.network.widths == network.widths
    assert_networks_agree(fused.network.part(orders), network, rtol=1e-9, atol=1e-9)


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
    fused = method.fuse(networks, in_order(*order), counts=counts)
    assert_as_slow(fused, slow_pfnm(networks, order, method, counts))


@given(families(4), methods, seeds)
@settings(max_examples=40)
def test_a_second_round_is_the_slow_one(networks: list[Dense], method: Pfnm, seed: int) -> None:
    """It goes on from where the neurons were.

    The authors' code has the prior's mean where that times its precision should be.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(networks)).tolist()
    counts = rng.integers(0, 4, (len(networks), 2)).astype(float)
    start = method.fuse(networks, in_order(*order), counts=counts).assignment

    def with_noise(array: Floats) -> Floats:
        return array + rng.normal(0, 0.3, array.shape)

    moved = [changed(network, with_noise) for network in networks]
    fused = method.fuse(moved, in_order(*order), counts=counts, start=start)
    assert_as_slow(fused, slow_pfnm(moved, order, method, counts, start))


@pytest.mark.parametrize("seed", [165, 394])
def test_the_authors_sweeps_go_on_where_one_has_changed_nothing(seed: int) -> None:
    """Clients' own atoms are made anew, without the start's mistake; others then differ too."""
    rng = np.random.default_rng(seed)
    networks = relatives([[2], [2], [2]], rng, 0.5)
    gamma = float(rng.uniform(0.1, 3))
    method = Pfnm(variance=0.3, prior_variance=0.05, gamma=gamma, sweeps=2, reference=True)
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
    fused = method.fuse(networks, in_order(*order))
    assert max(len(members) for members in groups(fused.assignment[0])) > 10
    assert_as_slow(fused, slow_pfnm(networks, order, method))


def arrays(network: Dense) -> list[Floats]:
    return [*network.weights, *network.biases]


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
    method = Pfnm(prior_variance=1e3, reference=True, sweeps=sweeps)
    fused = method.fuse(networks, in_order(1, 0))
    for network, indices in zip(networks, fused.assignment[0], strict=True):
        assert len(set(indices.tolist())) == len(indices) == network.widths[0]
    assert 710 <= fused.network.widths[0] <= 711


# What the paper promises


@given(families(), methods, seeds)
@settings(max_examples=40)
def test_widths_are_between_the_largest_client_and_all_and_matches_one_to_one(
    networks: list[Dense], method: Pfnm, seed: int
) -> None:
    counts = np.ones((len(networks), 2))
    fused = method.fuse(networks, np.random.default_rng(seed), counts=counts)
    for layer, width in enumerate(fused.network.widths):
        widths = [network.widths[layer] for network in networks]
        assert max(widths) <= width <= sum(widths)
        for indices, size in zip(fused.assignment[layer], widths, strict=True):
            assert len(set(indices.tolist())) == len(indices) == size
            assert 0 <= indices.min() <= indices.max() < width


@given(families(), methods, seeds, st.booleans())
@settings(max_examples=100)
def test_the_order_of_a_clients_neurons_changes_nothing(
    networks: list[Dense], method: Pfnm, seed: int, everybody: bool
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, (len(networks), 2)).astype(float)
    depth = len(networks[0].widths)
    clients = range(len(networks)) if everybody else [int(rng.integers(len(networks)))]
    layers = None if everybody else [int(rng.integers(depth))]
    moved = list(networks)
    orders: list[Any] = [[np.arange(width) for width in network.widths] for network in networks]
    for client in clients:
        moved[client], orders[client] = shuffled(networks[client], rng, layers)
    straight = method.fuse(networks, np.random.default_rng(seed), counts=counts)
    mixed = method.fuse(moved, np.random.default_rng(seed), counts=counts)
    x = rng.normal(size=(20, 3))
    expected = answers(straight.network, x)
    np.testing.assert_allclose(answers(mixed.network, x), expected, rtol=1e-9, atol=1e-9)
    for layer in range(depth):
        names = [order[layer] for order in orders]
        before = groups(straight.assignment[layer])
        assert set(groups(mixed.assignment[layer], names)) == set(before)


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
    fused = method.fuse([shuffled(network, rng)[0] for _ in range(copies)], rng).network
    assert fused.widths == tuple(widths)
    factor = (copies / variance) / (1 / 0.7 + copies / variance)
    shrunk = changed(network, lambda array: factor * array)
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(answers(fused, x), answers(shrunk, x), rtol=1e-9, atol=1e-9)
    for array, expected in zip(arrays(fused), arrays(shrunk), strict=True):
        in_order_of_size = np.sort(expected, None)
        np.testing.assert_allclose(np.sort(array, None), in_order_of_size, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("widths", [[6], [5, 4], [4, 3, 5]])
def test_copies_shrink_by_the_default_settings_too(widths: list[int]) -> None:
    """Three copies, both variances 0.1: 30 / (10 + 30)."""
    rng = np.random.default_rng(1)
    network = a_network(widths, rng)
    fused = Pfnm().fuse([network] * 3, rng)
    back = fused.part(0)  # its neurons in their old order
    assert_networks_agree(back, changed(network, lambda array: 0.75 * array), rtol=1e-12)
    assert fused.network.widths == tuple(widths)


@pytest.mark.parametrize("widths", [[6], [5, 4]])
def test_a_vague_prior_gives_exactly_the_network(widths: list[int]) -> None:
    rng = np.random.default_rng(2)
    network = a_network(widths, rng)
    copies = [shuffled(network, rng)[0] for _ in range(3)]
    fused = Pfnm(variance=1e-3, prior_variance=1e9).fuse(copies, rng).network
    x = rng.normal(size=(20, 3))
    np.testing.assert_allclose(answers(fused, x), answers(network, x), rtol=1e-9)


def test_a_larger_gamma_makes_more_neurons_on_average() -> None:
    means = []
    for gamma in (1e-5, 1.0, 1e5):
        rng = np.random.default_rng(0)
        widths = []
        for _ in range(20):
            networks = relatives([[4], [3], [4]], rng, 0.5)
            fused = Pfnm(gamma=gamma).fuse(networks, rng)
            widths.append(fused.network.widths[0])
        means.append(np.mean(widths))
    assert means[0] < means[1] < means[2]


def test_noisy_relatives_are_recognised() -> None:
    """Small noise: the true neurons come out, whoever has them."""
    rng = np.random.default_rng(5)
    large = a_network([8], rng)
    truth = [rng.permutation(8)[:n] for n in (6, 5, 8)]

    def with_noise(array: Floats) -> Floats:
        return array + rng.normal(0, 0.02, array.shape)

    networks = [changed(large.part([neurons]), with_noise) for neurons in truth]
    fused = Pfnm(variance=1e-3, prior_variance=1.0).fuse(networks, rng)
    assert set(groups(fused.assignment[0])) == set(groups(truth))
    x = rng.normal(size=(50, 3))
    assert np.abs(answers(fused.network, x) - answers(large, x)).max() < 0.3


# Class weights


def test_a_clients_weights_to_a_class_count_by_its_share_of_the_class() -> None:
    """One neuron, all variances 1; shares 3/4 and 1/4 of one class, all and none of the other."""
    weights = (np.array([[1.0]]), np.array([[2.0], [5.0]]))
    first = Dense(weights, (np.array([1.0]), np.array([4.0, 8.0])))
    weights = (np.array([[3.0]]), np.array([[6.0], [7.0]]))
    second = Dense(weights, (np.array([2.0]), np.array([0.0, 9.0])))
    counts = np.array([[30.0, 7.0], [10.0, 0.0]])
    method = Pfnm(variance=1.0, prior_variance=1.0, gamma=1e-9, class_weights=True)
    fused = method.fuse([first, second], np.random.default_rng(0), counts=counts).network
    assert fused.widths == (1,)
    assert fused.weights[0].item() == pytest.approx((1 + 3) / 3)
    assert fused.biases[0].item() == pytest.approx((1 + 2) / 3)
    assert fused.weights[1].ravel().tolist() == pytest.approx([(0.75 * 2 + 0.25 * 6) / 2, 5 / 2])
    assert fused.biases[1].tolist() == pytest.approx([0.75 * 4 / 2, 8 / 2])


@pytest.mark.parametrize("reference", [False, True])
def test_a_class_that_nobody_has_keeps_the_priors_weights(reference: bool) -> None:
    rng = np.random.default_rng(0)
    counts = np.array([[3.0, 0.0], [5.0, 0.0]])
    method = Pfnm(class_weights=True, reference=reference)
    fused = method.fuse(relatives([[3], [4]], rng), rng, counts=counts).network
    assert np.isfinite(fused.weights[1]).all()
    assert (fused.weights[1][1] == 0).all()
    assert fused.biases[1][1] == pytest.approx(0.1 if reference else 0.0)
    assert (fused.weights[1][0] != 0).all()


def test_shares_and_not_numbers_of_samples_count() -> None:
    rng = np.random.default_rng(0)
    networks = relatives([[3], [4]], rng)
    counts = np.array([[3.0, 2.0], [5.0, 1.0]])
    method = Pfnm(class_weights=True)
    few = method.fuse(networks, in_order(0, 1), counts=counts)
    many = method.fuse(networks, in_order(0, 1), counts=counts * [100, 7])
    assert_networks_agree(few.network, many.network, rtol=1e-12)


def test_classes_count_alike_unless_asked_for() -> None:
    rng = np.random.default_rng(0)
    networks = relatives([[3], [4]], rng)
    counts = np.array([[3.0, 2.0], [5.0, 1.0]])
    with_counts = Pfnm().fuse(networks, in_order(0, 1), counts=counts).network
    without_counts = Pfnm().fuse(networks, in_order(0, 1)).network
    assert_networks_agree(with_counts, without_counts, rtol=0)
    method = Pfnm(class_weights=True)
    weighted = method.fuse(networks, in_order(0, 1), counts=counts).network
    assert not np.allclose(weighted.biases[1], without_counts.biases[1])


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
    copies = copy.deepcopy(networks)
    Pfnm(reference=True).fuse(networks, rng, counts=np.ones((2, 2)))
    for network, before in zip(networks, copies, strict=True):
        assert_networks_agree(network, before, rtol=0)


@pytest.mark.parametrize(
    ("outputs", "shrink", "factor"),
    [(1, None, 1), (2, None, 3 / 4), (1, True, 3 / 4), (2, False, 1)],
)
def test_numbers_are_not_drawn_to_zero_unless_asked_for(
    outputs: int, shrink: bool | None, factor: float
) -> None:
    """Three copies, as much noise as prior: each weight is 3 / (3 + 1) of its mean, or the mean."""
    network = a_network([4, 3], np.random.default_rng(0), outputs=outputs)
    fused = Pfnm(shrink=shrink).fuse([network] * 3, np.random.default_rng(0)).network
    assert fused.widths == (4, 3)
    for array, expected in zip(arrays(fused), arrays(network), strict=True):
        assert np.sort(array.ravel()) == pytest.approx(np.sort(factor * expected.ravel()))


def test_a_class_that_a_neuron_knows_nothing_of_gets_no_weight() -> None:
    networks = [a_network([3], np.random.default_rng(seed)) for seed in range(2)]
    counts = np.array([[5.0, 0], [5, 0]])  # nobody has the second class
    method = Pfnm(class_weights=True, shrink=False)
    fused = method.fuse(networks, np.random.default_rng(0), counts=counts).network
    assert fused.weights[-1][1] == pytest.approx(np.zeros(fused.widths[0]))
    assert fused.biases[-1][1] == 0
    assert np.isfinite(fused.weights[-1]).all()
