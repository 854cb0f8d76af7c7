"""Gaussian mixtures that clients have fitted alone become one: their means are matched, weights and covariances follow.

As in Yurochkin et al., Statistical Model Aggregation via Parameter Matching, 2019, section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Floats, Matching
from tacit.federated.fusion.spahm import Spahm


def fuse_mixtures(
    mixtures: Sequence[Any],
    draw: np.random.Generator,
    samples: Sequence[float] | None = None,
    method: Spahm | None = None,
) -> tuple[Any, Matching]:
    """One scikit-learn GaussianMixture of many that are fitted, and which of its components each of theirs is.

    Clients count by their `samples`, where these are given. A component's covariance is the mean of its members'.
    """
    from sklearn.mixture import GaussianMixture

    kinds = {mixture.covariance_type for mixture in mixtures}
    if len(kinds) != 1 or not all(hasattr(mixture, "means_") for mixture in mixtures):
        raise DataError(
            f"expected fitted mixtures with one covariance_type, got {', '.join(sorted(kinds)) or 'none'}"
        )
    kind, sizes = (
        kinds.pop(),
        np.ones(len(mixtures)) if samples is None else np.asarray(samples, np.float64),
    )
    if sizes.shape != (len(mixtures),) or not (sizes > 0).all():
        raise DataError(
            f"expected a number of samples above 0 for each of {len(mixtures)} mixtures"
        )
    found = (method or Spahm()).match([mixture.means_ for mixture in mixtures], draw)
    weights = [size * mixture.weights_ for size, mixture in zip(sizes, mixtures, strict=True)]
    share = _summed(found, weights)
    fused = GaussianMixture(len(found.atoms), covariance_type=kind)
    fused.weights_, fused.means_ = share / share.sum(), found.atoms
    fused.covariances_ = _covariances(kind, mixtures, found, weights)
    fused.precisions_cholesky_ = _precisions(kind, fused.covariances_)
    fused.n_features_in_, fused.converged_ = found.atoms.shape[1], True
    return fused, found


def _covariances(
    kind: str, mixtures: Sequence[Any], found: Matching, weights: Sequence[Floats]
) -> Floats:
    """Means over members, by their weights."""
    if kind == "tied":  # one matrix for all components
        sizes = [own.sum() for own in weights]
        return np.asarray(
            np.average([mixture.covariances_ for mixture in mixtures], axis=0, weights=sizes)
        )
    parts = [
        (own.T * mixture.covariances_.T).T for own, mixture in zip(weights, mixtures, strict=True)
    ]
    return np.asarray((_summed(found, parts).T / _summed(found, weights)).T)


def _summed(found: Matching, parts: Sequence[Floats]) -> Floats:
    """Sums over each component's members."""
    total = np.zeros((len(found.atoms), *parts[0].shape[1:]))
    for places, part in zip(found.places, parts, strict=True):
        total[places] += part
    return total


def _precisions(kind: str, covariances: Floats) -> Floats:
    """The Cholesky factors of the inverse, as scikit-learn keeps them."""
    if kind in ("diag", "spherical"):
        return np.asarray(1 / np.sqrt(covariances))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariances)).swapaxes(-1, -2))
