"""The plain average: what a fusion has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.errors import StudyError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion


@dataclass(frozen=True)
class Average(Fusion, name="average"):
    """Averages networks neuron by neuron, in the order in which they stand; clients are weighted by
    their samples, if these are known."""

    one_width: ClassVar[bool] = True

    @property
    def uses_counts(self) -> bool:
        return True

    def fuse(
        self,
        networks: Sequence[Dense],
        rng: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        widths = networks[0].widths
        if any(network.widths != widths for network in networks):
            raise StudyError("average needs networks of the same widths; use pfnm or spahm")
        samples = np.ones(len(networks)) if counts is None else counts.sum(1)
        shares = samples / samples.sum()
        weights = _means([network.weights for network in networks], shares)
        biases = _means([network.biases for network in networks], shares)
        assignment = tuple((np.arange(width),) * len(networks) for width in widths)
        return Fused(Dense(weights, biases), assignment)


def _means(networks: Sequence[tuple[Floats, ...]], shares: Floats) -> tuple[Floats, ...]:
    """The weighted mean of each layer's array over the networks."""
    means = []
    for arrays in zip(*networks, strict=True):
        weighted = [share * array for share, array in zip(shares, arrays, strict=True)]
        means.append(np.asarray(sum(weighted)))
    return tuple(means)
