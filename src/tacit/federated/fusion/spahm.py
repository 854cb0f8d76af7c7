"""SPAHM. Yurochkin, Agarwal, Ghosh, Greenewald, Hoang: Statistical Model Aggregation via Parameter Matching, 2019,
algorithm 1, for Gaussian parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from tacit.core.errors import DataError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion, check_sizes, fuse_layers
from tacit.federated.fusion.matching import (
    Atoms,
    Bag,
    Floats,
    Matching,
    Places,
    Prior,
    Rules,
    match,
)

FLOOR = 1e-10  # of variances
LOOKED_AT = 500  # vectors, for a first guess


@dataclass(frozen=True)
class Spahm(Fusion, name="spahm"):
    """As pfnm, but averaged over what the global neurons may be, with variances that it estimates (Yurochkin, 2019).

    It matches any bags of vectors, such as the means of mixtures. `variance` and `prior_variance` are where the
    estimates start, for every dimension; by default they follow from the vectors. `gamma` is how readily new global
    ones are made. `estimate: false` keeps the variances as they are given.
    """

    variance: float | None = None
    prior_variance: float | None = None
    gamma: float = 1.0
    sweeps: int = 10
    estimate: bool = True

    def __post_init__(self) -> None:
        check_sizes(self, "variance", "prior_variance", "gamma")

    def match(
        self,
        bags: Sequence[Floats],
        draw: np.random.Generator,
        *,
        start: Sequence[Places] | None = None,
    ) -> Matching:
        """Matches clients' vectors, (n_j, D) each."""
        vectors = [np.asarray(bag, np.float64) for bag in bags]
        if not vectors or any(
            bag.ndim != 2 or bag.shape[1] != vectors[0].shape[1] for bag in vectors
        ):
            raise DataError(
                "expected a matrix of vectors for each client, all of the same dimension"
            )
        if not sum(map(len, vectors)) or not all(np.isfinite(bag).all() for bag in vectors):
            raise DataError("expected vectors of finite numbers")
        centre = np.vstack(vectors).mean(0)
        vectors = [
            bag - centre for bag in vectors
        ]  # far from zero, squares would drown what tells vectors apart
        guess = self._guess(vectors)

        def update(places: Sequence[Places]) -> tuple[list[Bag], Prior]:
            return weigh(vectors, *estimate(vectors, places, guess))

        rules = Rules(self.gamma, self.sweeps, integrated=True)
        found = match(
            *weigh(vectors, *guess),
            rules,
            draw,
            start=start,
            update=update if self.estimate else None,
        )
        return replace(found, atoms=found.atoms + centre)

    def fuse(
        self,
        networks: Sequence[Dense],
        draw: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        def match_layer(
            _layer: int, vectors: Sequence[Floats], places: Sequence[Places] | None
        ) -> Matching:
            return self.match(vectors, draw, start=places)

        network, assignment, solving = fuse_layers(networks, match_layer, start)
        bias = np.mean([one.biases[-1] for one in networks], axis=0)
        return Fused(replace(network, biases=(*network.biases[:-1], bias)), assignment, solving)

    def _guess(self, vectors: Sequence[Floats]) -> Hyper:
        """Where the estimates start: two vectors of one atom differ by twice the variance."""
        together = np.vstack(vectors)
        spread = together.var(0)
        prior = spread if self.prior_variance is None else np.full_like(spread, self.prior_variance)
        noise = nearest(vectors) / 2 if self.variance is None else self.variance
        return together.mean(0), np.full_like(spread, max(noise, FLOOR)), np.maximum(prior, FLOOR)


Hyper = tuple[
    Floats, Floats, Floats
]  # the atoms' mean, the vectors' variance and the atoms' variance, (D,) each


def weigh(
    vectors: Sequence[Floats], mean: Floats, variance: Floats, prior_variance: Floats
) -> tuple[list[Bag], Prior]:
    """Vectors and prior with these hyper-parameters."""
    return [Bag(bag, 1 / variance) for bag in vectors], Prior(mean, 1 / prior_variance)


def estimate(vectors: Sequence[Floats], places: Sequence[Places], guess: Hyper) -> Hyper:
    """The hyper-parameters that fit these places; where no two vectors share an atom, nothing tells the variance."""
    size = vectors[0].shape[1]
    flat = Prior(np.zeros(size), np.zeros(size))
    sums = Atoms.of([Bag(bag, np.ones(size)) for bag in vectors], places, flat)
    squares = Atoms.of(
        [Bag(np.square(bag), np.ones(size)) for bag in vectors], places, flat
    ).natural
    counts = sums.counts[:, None]
    means, total, atoms = sums.natural / counts, sums.counts.sum(), len(counts)
    mean = means.mean(0)
    variance = (
        (squares - sums.natural * means).sum(0) / (total - atoms) if total > atoms else guess[1]
    )
    prior = np.square(means - mean).mean(0) - variance * (1 / counts).mean()
    return mean, np.maximum(variance, FLOOR), np.maximum(prior, FLOOR)


def nearest(vectors: Sequence[Floats]) -> float:
    """The median, over vectors, of the mean squared difference to the nearest vector of another client.

    Of many vectors some are looked at, by their length, since their order means nothing.
    """
    share = max(1, LOOKED_AT // len(vectors))
    found: list[Floats] = []
    for client, bag in enumerate(vectors):
        others = [other for k, other in enumerate(vectors) if k != client and len(other)]
        if len(bag) and others:
            ranked = np.argsort(np.square(bag).sum(1))
            some = bag[ranked[np.linspace(0, len(bag) - 1, min(share, len(bag))).astype(int)]]
            found.append(cdist(some, np.vstack(others), "sqeuclidean").min(1))
    return (
        float(np.median(np.concatenate(found))) / vectors[0].shape[1] if found else 0.0
    )  # nothing to be matched
