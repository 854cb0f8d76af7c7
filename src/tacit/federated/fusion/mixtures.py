"""Gaussian mixtures that clients have fitted alone become one.

Their means are matched, and weights and covariances follow. As in Yurochkin et al., Statistical
Model Aggregation via Parameter Matching, 2019, section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Matching
from tacit.federated.fusion.spahm import Spahm


def fuse_mixtures(
    mixtures: Sequence[Any],
    rng: np.random.Generator,
    samples: Sequence[float] | None = None,
    method: Spahm | None = None,
) -> tuple[Any, Matching]:
    """One scikit-learn GaussianMixture of many that are fitted, and which component is which.

    Clients count by their `samples`, where these are given. A component's covariance is the mean of
    its members'.
    """
    from sklearn.mixture import GaussianMixture

    kind = _covariance_type(mixtures)
    sizes = _sample_sizes(samples, len(mixtures))
    means = [mixture.means_ for mixture in mixtures]
    matching = (method or Spahm()).match(means, rng)
    weights = [size * mixture.weights_ for size, mixture in zip(sizes, mixtures, strict=True)]
    total_weights = _summed(matching, weights)
    fused = GaussianMixture(len(matching.atoms), covariance_type=kind)
    fused.weights_ = total_weights / total_weights.sum()
    fused.means_ = matching.atoms
    fused.covariances_ = _covariances(kind, mixtures, matching, weights)
    fused.precisions_cholesky_ = _precisions(kind, fused.covariances_)
    fused.n_features_in_ = matching.atoms.shape[1]
    fused.converged_ = True
    return fused, matching


def _covariance_type(mixtures: Sequence[Any]) -> str:
    """The one that all mixtures have."""
    kinds = sorted({mixture.covariance_type for mixture in mixtures})
    fitted = all(hasattr(mixture, "means_") for mixture in mixtures)
    if len(kinds) != 1 or not fitted:
        raise DataError(
            f"expected fitted mixtures with one covariance_type, got {', '.join(kinds) or 'none'}"
        )
    return str(kinds[0])


def _sample_sizes(samples: Sequence[float] | None, count: int) -> Floats:
    """How much each mixture counts."""
    sizes = np.ones(count) if samples is None else np.asarray(samples, np.float64)
    if sizes.shape != (count,) or not (sizes > 0).all():
        raise DataError(f"expected a number of samples above 0 for each of {count} mixtures")
    return sizes


def _covariances(
    kind: str, mixtures: Sequence[Any], matching: Matching, weights: Sequence[Floats]
) -> Floats:
    """Means over members, by their weights."""
    covariances = [mixture.covariances_ for mixture in mixtures]
    if kind == "tied":  # one matrix for all components
        sizes = [components.sum() for components in weights]
        return np.asarray(np.average(covariances, axis=0, weights=sizes))
    pairs = zip(weights, covariances, strict=True)
    weighted = [(components.T * covariance.T).T for components, covariance in pairs]
    total = _summed(matching, weighted)
    return np.asarray((total.T / _summed(matching, weights)).T)


def _summed(matching: Matching, arrays: Sequence[Floats]) -> Floats:
    """Sums over each fused component's members; arrays have a row for each local component."""
    shape = (len(matching.atoms), *arrays[0].shape[1:])
    total = np.zeros(shape)
    for components, array in zip(matching.places, arrays, strict=True):
        total[components] += array
    return total


def _precisions(kind: str, covariances: Floats) -> Floats:
    """The Cholesky factors of the inverse, as scikit-learn keeps them."""
    if kind in ("diag", "spherical"):
        return np.asarray(1 / np.sqrt(covariances))
    factors = np.linalg.cholesky(covariances)
    return np.asarray(np.linalg.inv(factors).swapaxes(-1, -2))
