from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.mixture import GaussianMixture

import tacit
from tacit.core.arrays import Floats
from tacit.core.errors import DataError
from tacit.federated.fusion.mixtures import fuse_mixtures

COMPONENTS, SIZE, CLIENTS = 8, 5, 10


def scene(seed: int) -> tuple[Floats, list[Floats]]:
    """Well separated centres, and samples of clients that each see some of them."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(scale=5, size=(COMPONENTS, SIZE))
    while pdist(centres).min() < 6:
        centres = draw.normal(scale=5, size=(COMPONENTS, SIZE))
    seen = [
        draw.choice(COMPONENTS, size=draw.integers(3, 7), replace=False) for _ in range(CLIENTS)
    ]
    samples = []
    for components in seen:
        clouds = [centres[k] + draw.normal(size=(60, SIZE)) for k in components]
        samples.append(np.vstack(clouds))
    return centres, samples


def fitted(samples: list[Floats], kind: str = "full") -> list[GaussianMixture]:
    mixtures = []
    for points in samples:
        components = len(points) // 60
        mixture = GaussianMixture(components, covariance_type=kind, n_init=5, random_state=0)
        mixtures.append(mixture.fit(points))
    return mixtures


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_a_mixture_that_was_split_over_clients_is_put_together_again(
    seed: int, scale: float
) -> None:
    centres, samples = scene(seed)
    means = [mixture.means_ * scale for mixture in fitted(samples)]
    fused = tacit.fuse(means, seed=seed)
    assert fused.widths == (COMPONENTS,)
    errors = cdist(centres, fused.model / scale).min(1)
    assert errors.max() < 0.4  # a client's own, of 60 samples, is sqrt(5 / 60) = 0.29


@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
def test_the_fused_mixture_fits_the_data_as_one_of_all_data_does(kind: str) -> None:
    _, samples = scene(0)
    together = np.vstack(samples)
    counts = [len(points) for points in samples]
    fused = tacit.fuse(fitted(samples, kind), counts=counts).model
    reference = GaussianMixture(COMPONENTS, covariance_type=kind, n_init=5, random_state=0)
    reference.fit(together)
    assert fused.score(together) == pytest.approx(reference.score(together), abs=0.05)
    assert fused.weights_.sum() == pytest.approx(1)
    assert set(fused.predict(together)) == set(range(COMPONENTS))
    assert fused.sample(3)[0].shape == (3, SIZE)
    factors = fused.precisions_cholesky_
    if kind in ("full", "tied"):
        covariances = np.linalg.inv(factors @ factors.swapaxes(-1, -2))
    else:
        covariances = 1 / np.square(factors)
    assert covariances == pytest.approx(fused.covariances_)


def test_weights_and_covariances_are_means_over_members() -> None:
    narrow = GaussianMixture(1, covariance_type="spherical").fit(np.eye(3))
    wide = GaussianMixture(1, covariance_type="spherical").fit(2 * np.eye(3))
    fused, matching = fuse_mixtures([narrow, wide], np.random.default_rng(0), [10, 30])
    assert len(matching.atoms) == 1
    assert fused.weights_ == pytest.approx([1.0])
    expected = 0.25 * narrow.covariances_ + 0.75 * wide.covariances_
    assert fused.covariances_ == pytest.approx(expected)


def test_clients_that_see_more_weigh_more() -> None:
    points = np.array([[0.0, 0], [0, 0.1], [100, 100], [100, 100.1]])
    near = GaussianMixture(1, covariance_type="diag").fit(points[:2])
    far = GaussianMixture(1, covariance_type="diag").fit(points[2:])
    fused, _ = fuse_mixtures([near, far, near], np.random.default_rng(0), [10, 20, 10])
    weights = dict(zip(fused.means_[:, 0].round(-1), fused.weights_, strict=True))
    assert weights == pytest.approx({0.0: 0.5, 100.0: 0.5})


def test_mixtures_that_do_not_fit_together_are_refused() -> None:
    data = np.random.default_rng(0).normal(size=(20, 2))
    good = GaussianMixture(2).fit(data)
    with pytest.raises(DataError, match="one covariance_type"):
        tacit.fuse([good, GaussianMixture(2, covariance_type="diag").fit(data)])
    with pytest.raises(DataError, match="fitted"):
        tacit.fuse([good, GaussianMixture(2)])
    with pytest.raises(DataError, match="above 0 for each of 2"):
        tacit.fuse([good, good], counts=[1, 0])
    with pytest.raises(DataError, match="same dimension"):
        tacit.fuse([good, GaussianMixture(2).fit(data[:, :1])])
