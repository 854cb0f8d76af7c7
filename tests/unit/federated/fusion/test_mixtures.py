from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.mixture import GaussianMixture

import tacit
from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Floats
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
    return centres, [
        np.vstack([centres[k] + draw.normal(size=(60, SIZE)) for k in own]) for own in seen
    ]


def fitted(samples: list[Floats], kind: str = "full") -> list[GaussianMixture]:
    return [
        GaussianMixture(len(own) // 60, covariance_type=kind, n_init=5, random_state=0).fit(own)
        for own in samples
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_a_mixture_that_was_split_over_clients_is_put_together_again(
    seed: int, scale: float
) -> None:
    centres, samples = scene(seed)
    fused = tacit.fuse(
        [own * scale for own in (mixture.means_ for mixture in fitted(samples))], seed=seed
    )
    assert fused.widths == (COMPONENTS,)
    errors = cdist(centres, fused.model / scale).min(1)
    assert (
        errors.max() < 0.4
    )  # a client's own estimate, of 60 samples, is off by sqrt(5 / 60) = 0.29


@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
def test_the_fused_mixture_fits_the_data_as_one_of_all_data_does(kind: str) -> None:
    _, samples = scene(0)
    together = np.vstack(samples)
    fused = tacit.fuse(fitted(samples, kind), counts=[len(own) for own in samples]).model
    reference = GaussianMixture(COMPONENTS, covariance_type=kind, n_init=5, random_state=0).fit(
        together
    )
    assert fused.score(together) == pytest.approx(reference.score(together), abs=0.05)
    assert fused.weights_.sum() == pytest.approx(1)
    assert set(fused.predict(together)) == set(range(COMPONENTS))
    assert fused.sample(3)[0].shape == (3, SIZE)
    covariances = (
        np.linalg.inv(fused.precisions_cholesky_ @ fused.precisions_cholesky_.swapaxes(-1, -2))
        if kind
        in (
            "full",
            "tied",
        )
        else 1 / np.square(fused.precisions_cholesky_)
    )
    assert covariances == pytest.approx(fused.covariances_)


def test_weights_and_covariances_are_means_over_members() -> None:
    one, other = (
        GaussianMixture(1, covariance_type="spherical").fit(np.eye(3) * k) for k in (1, 2)
    )
    fused, found = fuse_mixtures([one, other], np.random.default_rng(0), [10, 30])
    assert len(found.atoms) == 1
    assert fused.weights_ == pytest.approx([1.0])
    assert fused.covariances_ == pytest.approx(0.25 * one.covariances_ + 0.75 * other.covariances_)


def test_clients_that_see_more_weigh_more() -> None:
    far = np.array([[0.0, 0], [0, 0.1], [100, 100], [100, 100.1]])
    one, other = (
        GaussianMixture(1, covariance_type="diag").fit(part) for part in (far[:2], far[2:])
    )
    fused, _ = fuse_mixtures([one, other, one], np.random.default_rng(0), [10, 20, 10])
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
