"""A fusion makes one network of many whose neurons are in no common order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.errors import DataError, StudyError
from tacit.core.registry import Registered
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.matching import Floats, Matching, Places

SMALLEST = 1e-30  # of variances
Assignment = tuple[
    tuple[Places, ...], ...
]  # for each hidden layer and client: the global neuron of each of its own


@dataclass(frozen=True)
class Fused:
    """One network, and which of its neurons each client's are."""

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
        draw: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        """Fuses clients' networks.

        `counts` are the samples that each client has of each class, (J, classes), or in all, (J, 1), where they are
        known; `start` is the assignment of the round before.
        """


def check_sizes(fusion: Any, *names: str) -> None:
    """Refuses variances and the like that are no numbers to compute with, and fewer than no sweeps."""
    for name in names:
        value = getattr(fusion, name)
        if value is not None and not SMALLEST <= value <= 1 / SMALLEST:
            wanted = f"a number above 0, from {SMALLEST:g} to {1 / SMALLEST:g}"
            raise StudyError(f"{fusion.name}.{name}: expected {wanted}, got {value}")
    if fusion.sweeps < 0:
        raise StudyError(f"{fusion.name}.sweeps: expected 0 or more, got {fusion.sweeps}")


def check_networks(networks: Sequence[Dense], names: Sequence[str]) -> None:
    """Refuses networks that cannot become one."""
    sizes = [
        {"inputs": one.inputs, "outputs": one.outputs, "hidden layers": len(one.widths)}
        for one in networks
    ]
    for name, own in zip(names, sizes, strict=True):
        for what, wanted in sizes[0].items():
            if own[what] != wanted:
                raise DataError(
                    f"{name} has {own[what]} {what}, and {names[0]} has {wanted}; they must agree"
                )


Match = Callable[[int, Sequence[Floats], Sequence[Places] | None], Matching]


def fuse_layers(
    networks: Sequence[Dense], match: Match, start: Assignment | None
) -> tuple[Dense, Assignment, float]:
    """Matches hidden layers from the top down; `match` does so for one layer. The outputs' biases are left at zero.

    A neuron is [its incoming weights, its bias, its outgoing weights]; the outgoing ones are lifted to the neurons
    of the layer above as they were matched, with zeros for those that the client does not have. Incoming weights belong
    to the layer below, so only the first hidden layer has any.
    """
    outgoing = [network.weights[-1].T for network in networks]
    weights: list[Floats] = []
    biases: list[Floats] = [np.zeros(networks[0].outputs)]
    assignment: list[tuple[Places, ...]] = []
    solving = 0.0
    for layer in reversed(range(len(networks[0].widths))):
        incoming = [
            network.weights[0] if layer == 0 else np.zeros((network.widths[layer], 0))
            for network in networks
        ]
        own = [network.biases[layer][:, None] for network in networks]
        found = match(
            layer,
            [np.hstack(parts) for parts in zip(incoming, own, outgoing, strict=True)],
            start[layer] if start else None,
        )
        cut = incoming[0].shape[1]
        weights.insert(0, found.atoms[:, cut + 1 :].T)
        biases.insert(0, found.atoms[:, cut])
        assignment.insert(0, found.places)
        solving += found.solving
        if layer:
            below = [network.weights[layer].T for network in networks]
            outgoing = [
                _lifted(*pair, len(found.atoms)) for pair in zip(below, found.places, strict=True)
            ]
    weights.insert(0, found.atoms[:, :cut])
    return Dense(tuple(weights), tuple(biases)), tuple(assignment), solving


def _lifted(weights: Floats, places: Places, width: int) -> Floats:
    found = np.zeros((len(weights), width))
    found[:, places] = weights
    return found
