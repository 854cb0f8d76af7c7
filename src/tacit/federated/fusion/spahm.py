"""SPAHM.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang: Statistical Model Aggregation via Parameter Matching,
2019, algorithm 1, for Gaussian parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from tacit.core.arrays import Floats
from tacit.core.errors import DataError
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fused, Fusion, check_sizes, fuse_layers
from tacit.federated.fusion.matching import Atoms, Bag, Matching, Places, Prior, Rules, match

FLOOR = 1e-10  # of variances
LOOKED_AT = 500  # vectors, for a first guess

# The atoms' mean, the vectors' variance and the atoms' variance, (D,) each.
Hyper = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class Spahm(Fusion, name="spahm"):
    """Like pfnm, but with the unknown global neurons integrated out and the variances estimated
    (Yurochkin, 2019).

    It matches any sets of vectors, such as the means of mixtures. `variance` and `prior_variance`
    are where the estimates start, for every dimension; by default they follow from the vectors.
    A larger `gamma` gives more global neurons. `estimate: false` keeps the variances as they are
    given.
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
        rng: np.random.Generator,
        *,
        start: Sequence[Places] | None = None,
    ) -> Matching:
        """Matches clients' vectors, (n_j, D) each."""
        vectors = [np.asarray(bag, np.float64) for bag in bags]
        check_vectors(vectors)
        # Far from zero, squares would drown the differences between vectors.
        centre = np.vstack(vectors).mean(0)
        vectors = [bag - centre for bag in vectors]
        guess = self._guess(vectors)

        def update(places: Sequence[Places]) -> tuple[list[Bag], Prior]:
            return weigh(vectors, *estimate(vectors, places, guess))

        weighed, prior = weigh(vectors, *guess)
        rules = Rules(self.gamma, self.sweeps, integrated=True)
        estimating = update if self.estimate else None
        matching = match(weighed, prior, rules, rng, start=start, update=estimating)
        return replace(matching, atoms=matching.atoms + centre)

    def fuse(
        self,
        networks: Sequence[Dense],
        rng: np.random.Generator,
        *,
        counts: Floats | None = None,
        start: Assignment | None = None,
    ) -> Fused:
        def match_layer(
            _layer: int, vectors: Sequence[Floats], places: Sequence[Places] | None
        ) -> Matching:
            return self.match(vectors, rng, start=places)

        network, assignment, solving = fuse_layers(networks, match_layer, start)
        output_bias = np.mean([client.biases[-1] for client in networks], axis=0)
        network = replace(network, biases=(*network.biases[:-1], output_bias))
        return Fused(network, assignment, solving)

    def _guess(self, vectors: Sequence[Floats]) -> Hyper:
        """Where the estimates start: two vectors of one atom differ by twice the variance."""
        together = np.vstack(vectors)
        spread = together.var(0)
        noise = nearest(vectors) / 2 if self.variance is None else self.variance
        variance = np.full_like(spread, max(noise, FLOOR))
        prior = spread if self.prior_variance is None else np.full_like(spread, self.prior_variance)
        return together.mean(0), variance, np.maximum(prior, FLOOR)


def check_vectors(bags: Sequence[Floats]) -> None:
    """Refuses vectors that cannot be matched."""
    dimensions = {bag.shape[1:] for bag in bags}
    if len(dimensions) != 1 or bags[0].ndim != 2:
        raise DataError("expected a matrix of vectors for each client, all of the same dimension")
    together = np.vstack(bags)
    if not len(together) or not np.isfinite(together).all():
        raise DataError("expected vectors of finite numbers")


def weigh(
    vectors: Sequence[Floats], mean: Floats, variance: Floats, prior_variance: Floats
) -> tuple[list[Bag], Prior]:
    """Vectors and prior with these hyper-parameters."""
    bags = [Bag(bag, 1 / variance) for bag in vectors]
    return bags, Prior(mean, 1 / prior_variance)


def estimate(vectors: Sequence[Floats], places: Sequence[Places], guess: Hyper) -> Hyper:
    """The hyper-parameters that fit these places.

    Where no two vectors share an atom, nothing tells the variance, and it stays as guessed.
    """
    squared = [np.square(bag) for bag in vectors]
    sums = _sums(vectors, places)
    squares = _sums(squared, places).natural
    counts = sums.counts[:, None]
    means = sums.natural / counts
    mean = means.mean(0)
    total = sums.counts.sum()
    atoms = len(counts)
    _, variance, _ = guess
    if total > atoms:
        variance = (squares - sums.natural * means).sum(0) / (total - atoms)
    noise_of_means = variance * (1 / counts).mean()
    prior = np.square(means - mean).mean(0) - noise_of_means
    return mean, np.maximum(variance, FLOOR), np.maximum(prior, FLOOR)


def _sums(vectors: Sequence[Floats], places: Sequence[Places]) -> Atoms:
    """Plain sums over each atom's members: all precisions are one, and the prior has none."""
    size = vectors[0].shape[1]
    flat = Prior(np.zeros(size), np.zeros(size))
    bags = [Bag(bag, np.ones(size)) for bag in vectors]
    return Atoms.of(bags, places, flat)


def nearest(vectors: Sequence[Floats]) -> float:
    """The median, over vectors, of the mean squared difference to another client's nearest.

    Of many vectors only some are looked at, by their length, since their order means nothing.
    """
    share = max(1, LOOKED_AT // len(vectors))
    distances: list[Floats] = []
    for client, bag in enumerate(vectors):
        rest = [*vectors[:client], *vectors[client + 1 :]]
        elsewhere = [neighbours for neighbours in rest if len(neighbours)]
        if len(bag) and elsewhere:
            sample = _spread_sample(bag, share)
            squares = cdist(sample, np.vstack(elsewhere), "sqeuclidean")
            distances.append(squares.min(1))
    if not distances:  # nothing to be matched
        return 0.0
    median = float(np.median(np.concatenate(distances)))
    return median / int(vectors[0].shape[1])


def _spread_sample(bag: Floats, most: int) -> Floats:
    """At most so many of the vectors, from the shortest to the longest."""
    by_length = np.argsort(np.square(bag).sum(1))
    count = min(most, len(bag))
    ranks = np.linspace(0, len(bag) - 1, count).astype(int)
    return np.asarray(bag[by_length[ranks]])
