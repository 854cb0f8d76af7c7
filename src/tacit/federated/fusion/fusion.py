"""A fusion makes one network of many whose neurons are in no common order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.errors import DataError, StudyError
from tacit.core.registry import Registered
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.matching import Matching, Places

SMALLEST = 1e-30  # of variances

# For each hidden layer and client: the global neuron of each of the client's neurons.
Assignment = tuple[tuple[Places, ...], ...]


@dataclass(frozen=True)
class Fused:
    """One network, and which of its neurons each client's neurons have become."""

    network: Dense
    assignment: Assignment
    solving: float = 0.0  # seconds in the assignment solver

    def part(self, client: int) -> Dense:
        """The client's own neurons, with their weights in the global network."""
        return self.network.part([layer[client] for layer in self.assignment])


@dataclass(frozen=True)
class Fusion(Registered, family="fusions", home="tacit.federated.fusion"):
    """Base of the fusions: networks of one depth, and of any widths, become one."""

    one_width: ClassVar[bool] = False  # whether networks must be equally wide

    @property
    def weighs_classes(self) -> bool:
        """Whether `fuse` needs to know how many samples of each class clients have."""
        return False

    @property
    def uses_counts(self) -> bool:
        """Whether `fuse` makes anything of them."""
        return self.weighs_classes

    @abstractmethod
    def fuse(
        self,
        networks: Sequence[Dense],
        rng: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        """Fuses clients' networks.

        `counts` are the samples that each client has of each class, (J, classes), or in all,
        (J, 1), where they are known; `start` is the assignment of the round before.
        """


def check_sizes(fusion: Any, *names: str) -> None:
    """Refuses variances and the like that cannot be computed with, and a negative `sweeps`."""
    for name in names:
        value = getattr(fusion, name)
        if value is not None and not SMALLEST <= value <= 1 / SMALLEST:
            wanted = f"a number above 0, from {SMALLEST:g} to {1 / SMALLEST:g}"
            raise StudyError(f"{fusion.name}.{name}: expected {wanted}, got {value}")
    if fusion.sweeps < 0:
        raise StudyError(f"{fusion.name}.sweeps: expected 0 or more, got {fusion.sweeps}")


def check_networks(networks: Sequence[Dense], names: Sequence[str]) -> None:
    """Refuses networks that cannot become one."""
    for name, network in zip(names, networks, strict=True):
        sizes = _sizes(network)
        for kind, wanted in _sizes(networks[0]).items():
            if sizes[kind] != wanted:
                raise DataError(
                    f"{name} has {sizes[kind]} {kind}, and {names[0]} has {wanted}; they must agree"
                )


def _sizes(network: Dense) -> dict[str, int]:
    return {
        "inputs": network.inputs,
        "outputs": network.outputs,
        "hidden layers": len(network.widths),
    }


# Matches the neurons of one hidden layer: its number, each client's neurons as vectors, and the
# places of the round before.
MatchLayer = Callable[[int, Sequence[Floats], Sequence[Places] | None], Matching]


def fuse_layers(
    networks: Sequence[Dense], match: MatchLayer, start: Assignment | None
) -> tuple[Dense, Assignment, float]:
    """Matches hidden layers from the top down; the outputs' biases are left at zero.

    A neuron is [its incoming weights, its bias, its outgoing weights]. The outgoing ones are lifted
    to the neurons of the layer above as they were matched, with zeros for those that the client
    does not have. Incoming weights belong to the layer below, so only the first hidden layer has
    any. Returns the network, the assignment, and the seconds in the assignment solver.
    """
    outgoing = [network.weights[-1].T for network in networks]
    weights: list[Floats] = []  # from the outputs to the inputs, as the layers are matched
    biases: list[Floats] = [np.zeros(networks[0].outputs)]
    assignment: list[tuple[Places, ...]] = []
    solving = 0.0
    for layer in reversed(range(len(networks[0].widths))):
        vectors = _neurons(networks, layer, outgoing)
        matching = match(layer, vectors, start[layer] if start else None)
        incoming = networks[0].inputs if layer == 0 else 0
        weights.append(matching.atoms[:, incoming + 1 :].T)
        biases.append(matching.atoms[:, incoming])
        assignment.append(matching.places)
        solving += matching.solving
        if layer == 0:
            weights.append(matching.atoms[:, :incoming])
        else:
            outgoing = _lifted(networks, layer, matching)
    network = Dense(tuple(reversed(weights)), tuple(reversed(biases)))
    return network, tuple(reversed(assignment)), solving


def _neurons(networks: Sequence[Dense], layer: int, outgoing: Sequence[Floats]) -> list[Floats]:
    """Each client's neurons of a layer as vectors."""
    vectors = []
    for network, outgoing_weights in zip(networks, outgoing, strict=True):
        incoming_weights = np.zeros((network.widths[layer], 0))
        if layer == 0:
            incoming_weights = network.weights[0]
        bias = network.biases[layer][:, None]
        vectors.append(np.hstack([incoming_weights, bias, outgoing_weights]))
    return vectors


def _lifted(networks: Sequence[Dense], layer: int, matching: Matching) -> list[Floats]:
    """Each client's weights into a layer, with a column for every global neuron of the layer."""
    lifted = []
    for network, neurons in zip(networks, matching.places, strict=True):
        weights = network.weights[layer].T
        columns = np.zeros((len(weights), len(matching.atoms)))
        columns[:, neurons] = weights
        lifted.append(columns)
    return lifted
