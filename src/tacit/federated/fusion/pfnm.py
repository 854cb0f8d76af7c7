"""PFNM.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of
Neural Networks, 2019, algorithms 1 (one hidden layer) and 2 (several).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.errors import StudyError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion, check_sizes, fuse_layers
from tacit.federated.fusion.matching import Atoms, Bag, Matching, Places, Prior, Rules, match

BIAS = 0.1  # the prior mean of biases in the authors' code
FLATTEST = 1e8


@dataclass(frozen=True)
class Pfnm(Fusion, name="pfnm"):
    """Neurons that are likely copies of one another become one; the global network grows as needed
    (Yurochkin, 2019).

    A local neuron is its global one plus noise of `variance`; global neurons have mean 0 and
    `prior_variance`; a larger `gamma` gives more of them. With `class_weights`, a client's weights
    into the output of a class count by the client's share of the samples of that class. With
    `shrink`, weights are pulled towards 0, by n / (n + variance / prior_variance) for a neuron that
    n clients share, instead of being plain means. This is the default, except for networks with one
    output, whose value it would change. `reference` follows the authors' code where it departs from
    the paper.
    """

    variance: float = 0.1
    prior_variance: float = 0.1
    gamma: float = 1.0
    sweeps: int = 5
    class_weights: bool = False
    shrink: bool | None = None
    reference: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, "variance", "prior_variance", "gamma")
        too_flat = self.prior_variance > FLATTEST * self.variance
        if self.weighs_classes and too_flat:  # sums would lose the prior in rounding
            raise StudyError(
                f"pfnm.prior_variance: expected at most {FLATTEST:g} times the variance with class"
                f" weights, got {self.prior_variance:g}"
            )

    @property
    def weighs_classes(self) -> bool:
        return self.class_weights

    @property
    def uses_counts(self) -> bool:
        return self.class_weights or self.reference

    def fuse(
        self,
        networks: Sequence[Dense],
        rng: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        last_layer = len(networks[0].widths) - 1
        outputs = networks[0].outputs
        shares = self._shares(counts, len(networks), outputs)
        rules = self._rules(outputs)

        def match_layer(
            layer: int, vectors: Sequence[Floats], places: Sequence[Places] | None
        ) -> Matching:
            bias = networks[0].inputs if layer == 0 else 0  # the column of the biases
            bags = self._bags(vectors, bias, shares if layer == last_layer else None)
            prior = self._prior(vectors[0].shape[1], bias)
            shift = prior.mean if self.reference else None  # where its later rounds begin
            return match(bags, prior, rules, rng, start=places, start_shift=shift)

        network, assignment, solving = fuse_layers(networks, match_layer, start)
        output_bias = self._output_bias(networks, shares)
        network = replace(network, biases=(*network.biases[:-1], output_bias))
        return Fused(network, assignment, solving)

    def _rules(self, outputs: int) -> Rules:
        if self.reference:
            return Rules(self.gamma, self.sweeps, popularity=1.0, most_counted=10, most_atoms=700)
        return Rules(self.gamma, self.sweeps, shrinks=self._shrinks(outputs))

    def _shrinks(self, outputs: int) -> bool:
        if self.reference:
            return True
        return outputs > 1 if self.shrink is None else self.shrink

    def _shares(self, counts: Floats | None, clients: int, outputs: int) -> Floats:
        """How much each client's weights to an output count: its share of the class, or one.

        (J, outputs)
        """
        if counts is not None and self.uses_counts and counts.shape[1] == outputs:
            return np.asarray(counts / np.maximum(counts.sum(0), 1))
        if self.class_weights:
            raise StudyError(
                "pfnm.class_weights needs counts: how many samples of each class every network was"
                " trained on"
            )
        return np.ones((clients, outputs))

    def _bags(self, vectors: Sequence[Floats], bias: int, shares: Floats | None) -> list[Bag]:
        """Neurons as vectors; `shares` weigh the outputs' columns, which follow the bias."""
        size = vectors[0].shape[1]
        precisions = np.full((len(vectors), size), 1 / self.variance)
        if shares is not None:
            precisions[:, bias + 1 :] *= shares
        return [Bag(*pair) for pair in zip(vectors, precisions, strict=True)]

    def _prior(self, size: int, bias: int) -> Prior:
        """Of neurons, as vectors whose column `bias` is the bias."""
        mean = np.zeros(size)
        if self.reference:
            mean[bias] = BIAS
        return Prior(mean, np.full(size, 1 / self.prior_variance))

    def _output_bias(self, networks: Sequence[Dense], shares: Floats) -> Floats:
        """The same estimate for the outputs' biases, which have no order to find."""
        outputs = shares.shape[1]
        mean = np.full(outputs, BIAS if self.reference else 0.0)
        precision = 1 / self.prior_variance if self._shrinks(outputs) else 0.0
        prior = Prior(mean, np.full_like(mean, precision))
        bags = []
        for network, share in zip(networks, shares, strict=True):
            vectors = network.biases[-1][None]
            bags.append(Bag(vectors, share / self.variance))
        only_atom = np.zeros(1, np.int64)
        atoms = Atoms.of(bags, [only_atom] * len(bags), prior)
        return atoms.estimate(prior).reshape(-1)
