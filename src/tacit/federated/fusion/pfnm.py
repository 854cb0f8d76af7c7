"""PFNM. Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of Neural
Networks, 2019, algorithms 1 (one hidden layer) and 2 (several)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.core.errors import StudyError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion, fuse_layers
from tacit.federated.fusion.matching import Bag, Floats, Matching, Places, Prior, Rules, match

BIAS = 0.1  # the prior mean of biases in the authors' code


@dataclass(frozen=True)
class Pfnm(Fusion, name="pfnm"):
    """Neurons that are likely copies of one another become one; the global network grows as needed (Yurochkin, 2019).

    A local neuron is its global one plus noise of `variance`; global neurons have mean 0 and `prior_variance`; `gamma`
    is how readily new ones are made. `class_weights`: of a class's outgoing weights, clients count by their samples of
    it. `reference` follows the authors' code where it departs from the paper.
    """

    variance: float = 0.1
    prior_variance: float = 0.1
    gamma: float = 1.0
    sweeps: int = 5
    class_weights: bool = False
    reference: bool = False

    def __post_init__(self) -> None:
        for name in ("variance", "prior_variance", "gamma"):
            if not getattr(self, name) > 0:
                raise StudyError(f"pfnm.{name}: expected a number above 0, got {getattr(self, name)}")
        if self.sweeps < 0:
            raise StudyError(f"pfnm.sweeps: expected 0 or more, got {self.sweeps}")

    def fuse(
        self,
        networks: Sequence[Dense],
        draw: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        depth, outputs = len(networks[0].widths), networks[0].outputs
        shares = self._shares(counts, len(networks), outputs)

        def match_layer(layer: int, vectors: Sequence[Floats], places: Sequence[Places] | None) -> Matching:
            size = vectors[0].shape[1]
            bias = networks[0].inputs if layer == 0 else 0
            precisions = np.full((len(networks), size), 1 / self.variance)
            if layer == depth - 1:
                precisions[:, bias + 1 :] *= shares
            prior = Prior(np.zeros(size), np.full(size, 1 / self.prior_variance))
            if self.reference:
                prior.mean[bias] = BIAS
            bags = [Bag(*pair) for pair in zip(vectors, precisions, strict=True)]
            shift = prior.mean if self.reference else None  # where its several rounds begin
            return match(bags, prior, self._rules, draw, start=places, start_shift=shift)

        network, assignment, solving = fuse_layers(networks, match_layer, start)
        bias = self._output_bias(networks, shares)
        return Fused(replace(network, biases=(*network.biases[:-1], bias)), assignment, solving)

    @property
    def _rules(self) -> Rules:
        if self.reference:
            return Rules(self.gamma, self.sweeps, popularity=1.0, most_counted=10, most_atoms=700)
        return Rules(self.gamma, self.sweeps)

    def _shares(self, counts: Floats | None, clients: int, outputs: int) -> Floats:
        """How much each client's weights to an output count, (J, outputs): its share of the class, or one."""
        if counts is None or not (self.class_weights or self.reference):
            if self.class_weights:
                raise StudyError(
                    "pfnm.class_weights needs counts: how many samples of each class every network was trained on"
                )
            return np.ones((clients, outputs))
        return np.asarray(counts / np.maximum(counts.sum(0), 1))

    def _output_bias(self, networks: Sequence[Dense], shares: Floats) -> Floats:
        """The same estimate for the outputs' biases, which have no order to find."""
        prior, mean = 1 / self.prior_variance, BIAS if self.reference else 0.0
        sums = sum(share / self.variance * one.biases[-1] for share, one in zip(shares, networks, strict=True))
        return np.asarray((mean * prior + sums) / (prior + shares.sum(0) / self.variance))
