"""The plain average: what a fusion has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.core.errors import StudyError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion
from tacit.federated.fusion.matching import Floats


@dataclass(frozen=True)
class Average(Fusion, name="average"):
    """Neuron by neuron, in whatever order they stand; clients count by their samples, where these are known."""

    one_width: ClassVar[bool] = True

    @property
    def uses_counts(self) -> bool:
        return True

    def fuse(
        self,
        networks: Sequence[Dense],
        draw: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        if len({network.widths for network in networks}) > 1:
            raise StudyError("average needs networks of the same widths; use pfnm or spahm")
        shares = np.ones(len(networks)) if counts is None else counts.sum(1)
        shares = shares / shares.sum()

        def mean(parts: Sequence[Floats]) -> Floats:
            return np.asarray(sum(share * part for share, part in zip(shares, parts, strict=True)))

        weights = tuple(
            mean(layer) for layer in zip(*(one.weights for one in networks), strict=True)
        )
        biases = tuple(mean(layer) for layer in zip(*(one.biases for one in networks), strict=True))
        same = tuple(tuple(np.arange(width) for _ in networks) for width in networks[0].widths)
        return Fused(Dense(weights, biases), same)
