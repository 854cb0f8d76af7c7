"""Dense networks for tests of fusions: random ones, reordered ones, and their outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tacit.core.arrays import Floats
from tacit.federated.fusion.dense import Dense


class InOrder:
    """Stands in for a generator, so that every sweep visits the clients in this order."""

    def __init__(self, *order: int) -> None:
        self.order = np.array(order)

    def permutation(self, _count: int) -> Any:
        return self.order


def in_order(*order: int) -> np.random.Generator:
    return cast(np.random.Generator, InOrder(*order))


def a_network(
    widths: Sequence[int], rng: np.random.Generator, inputs: int = 3, outputs: int = 2
) -> Dense:
    sizes = [inputs, *widths, outputs]
    weights = tuple(rng.normal(size=(after, before)) for before, after in itertools.pairwise(sizes))
    biases = tuple(rng.normal(size=len(weight)) for weight in weights)
    return Dense(weights, biases)


def relatives(
    widths: Sequence[Sequence[int]], rng: np.random.Generator, noise: float = 0.3
) -> list[Dense]:
    """Networks that share some of their neurons, give or take some noise.

    Each consists of some neurons of one large network, in random order.
    """
    widest = [max(layer_widths) for layer_widths in zip(*widths, strict=True)]
    large = a_network([width + 2 for width in widest], rng)

    def noisy(array: Floats) -> Floats:
        return array + noise * rng.normal(size=array.shape)

    networks = []
    for network_widths in widths:
        neurons = []
        for width, large_width in zip(network_widths, large.widths, strict=True):
            neurons.append(rng.permutation(large_width)[:width])
        networks.append(changed(large.part(neurons), noisy))
    return networks


def changed(network: Dense, how: Callable[[Floats], Floats]) -> Dense:
    return Dense(tuple(map(how, network.weights)), tuple(map(how, network.biases)))


def shuffled(
    network: Dense, rng: np.random.Generator, layers: Sequence[int] | None = None
) -> tuple[Dense, list[Any]]:
    """The same network with its hidden neurons in another order, and each neuron's old index."""
    orders = [rng.permutation(width) for width in network.widths]
    if layers is not None:
        for layer, order in enumerate(orders):
            if layer not in layers:
                orders[layer] = np.arange(len(order))
    weights = list(network.weights)
    biases = list(network.biases)
    for layer, order in enumerate(orders):
        weights[layer] = weights[layer][order]
        biases[layer] = biases[layer][order]
        weights[layer + 1] = weights[layer + 1][:, order]
    return Dense(tuple(weights), tuple(biases)), orders


def answers(network: Dense, x: Floats) -> Floats:
    """The network's outputs, with rectified hidden layers."""
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight.T + bias, 0)
    return np.asarray(x @ network.weights[-1].T + network.biases[-1])


def groups(
    places: Sequence[Any], names: Sequence[Any] | None = None
) -> list[frozenset[tuple[int, int]]]:
    """The vectors of each atom, as pairs of client and index; `names` are their old indices."""
    members: dict[int, set[tuple[int, int]]] = {}
    for client, atoms in enumerate(places):
        for index, atom in enumerate(atoms):
            name = index if names is None else names[client][index]
            members.setdefault(int(atom), set()).add((client, int(name)))
    return [frozenset(members[atom]) for atom in sorted(members)]


def assert_networks_agree(first: Dense, second: Dense, **tolerance: float) -> None:
    arrays = (*first.weights, *first.biases)
    expected = (*second.weights, *second.biases)
    for array, expected_array in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, expected_array, **tolerance)
