"""Dense networks for tests of fusions: made at random, put in another order, and asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.federated.fusion.dense import Dense

Floats = NDArray[np.float64]


class InOrder:
    """In place of a generator: clients are visited in this order in every sweep."""

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
    return Dense(weights, tuple(rng.normal(size=len(weight)) for weight in weights))


def relatives(
    widths: Sequence[Sequence[int]], rng: np.random.Generator, noise: float = 0.3
) -> list[Dense]:
    """Networks that share some of their neurons, give or take some noise: each is a part of one large network."""
    depth = len(widths[0])
    large = a_network([max(own[layer] for own in widths) + 2 for layer in range(depth)], rng)
    found = []
    for own in widths:
        part = large.part(
            [rng.permutation(large.widths[layer])[: own[layer]] for layer in range(depth)]
        )
        found.append(changed(part, lambda array: array + noise * rng.normal(size=array.shape)))
    return found


def changed(network: Dense, how: Callable[[Floats], Floats]) -> Dense:
    return Dense(tuple(map(how, network.weights)), tuple(map(how, network.biases)))


def shuffled(
    network: Dense, rng: np.random.Generator, layers: Sequence[int] | None = None
) -> tuple[Dense, list[Any]]:
    """The same network with its hidden neurons in another order, and the old place of each."""
    orders = [rng.permutation(width) for width in network.widths]
    if layers is not None:
        orders = [order if k in layers else np.arange(len(order)) for k, order in enumerate(orders)]
    weights, biases = list(network.weights), list(network.biases)
    for layer, order in enumerate(orders):
        weights[layer], biases[layer] = weights[layer][order], biases[layer][order]
        weights[layer + 1] = weights[layer + 1][:, order]
    return Dense(tuple(weights), tuple(biases)), orders


def answers(network: Dense, x: Floats) -> Floats:
    """What the network says, with rectified hidden layers."""
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight.T + bias, 0)
    return np.asarray(x @ network.weights[-1].T + network.biases[-1])


def groups(
    places: Sequence[Any], names: Sequence[Any] | None = None
) -> list[frozenset[tuple[int, int]]]:
    """The vectors, as (client, number), of each atom; `names` are the vectors' old numbers."""
    found: dict[int, set[tuple[int, int]]] = {}
    for client, own in enumerate(places):
        for number, atom in enumerate(own):
            found.setdefault(int(atom), set()).add(
                (client, int(number if names is None else names[client][number]))
            )
    return [frozenset(found[atom]) for atom in sorted(found)]


def assert_networks_agree(one: Dense, other: Dense, **tolerance: float) -> None:
    for mine, theirs in zip(
        (*one.weights, *one.biases), (*other.weights, *other.biases), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, **tolerance)
