"""Calibration curves equal scikit-learn's, and those of sites add up."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from tacit.training.calibration import BINS, Calibration, calibrate


def test_the_curve_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.beta(0.5, 2, 700)
    happened = rng.random(700) < probabilities
    curve = calibrate(probabilities, happened)
    observed, predicted = calibration_curve(happened, probabilities, n_bins=BINS)
    known = curve.rows[0] > 0
    np.testing.assert_allclose(curve.observed[0][known], observed, rtol=1e-12)
    np.testing.assert_allclose(curve.predicted[0][known], predicted, rtol=1e-12)
    assert curve.rows.sum() == 700


def test_the_error_is_the_mean_distance_from_the_diagonal() -> None:
    """Half of the rows say 0.9 and are right half of the time; the others say 0 and it is so."""
    probabilities = np.array([0.9, 0.9, 0.0, 0.0])
    curve = calibrate(probabilities, np.array([1, 0, 0, 0]))
    assert curve.error[0] == pytest.approx(0.5 * 0.4)


def test_groups_are_as_each_alone_and_their_counts_add_up() -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.random(300).astype(np.float32)
    happened = rng.random(300) < 0.3
    group = rng.integers(0, 3, 300)
    together = calibrate(probabilities, happened, group, 3)
    for number in range(3):
        rows = group == number
        alone = calibrate(probabilities[rows], happened[rows])
        np.testing.assert_allclose(together.expected[number], alone.expected[0])
    whole = calibrate(probabilities, happened)
    summed = Calibration(
        rows=together.rows.sum(0, keepdims=True),
        expected=together.expected.sum(0, keepdims=True),
        happened=together.happened.sum(0, keepdims=True),
    )
    np.testing.assert_allclose(summed.observed, whole.observed)
    assert summed.error[0] == pytest.approx(whole.error[0])


def test_a_probability_of_1_is_in_the_last_bin() -> None:
    assert calibrate(np.array([1.0]), np.array([True])).rows[0].tolist() == [0] * 9 + [1]


def test_rows_without_a_probability_are_left_out() -> None:
    curve = calibrate(np.array([np.nan, 0.4]), np.array([True, False]), np.array([0, 1]), 2)
    assert curve.rows.sum(1).tolist() == [0, 1]
