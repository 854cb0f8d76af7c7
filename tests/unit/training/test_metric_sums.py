"""Sums of sites give the metrics of all their rows, with the error that they state."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from tacit.core.arrays import Floats, Index
from tacit.core.errors import DataError
from tacit.training.metric_sums import ClassSums, NumberSums
from tacit.training.metrics import METRICS, measure_classes, measure_numbers

SITES = 5


def draw_case(seed: int) -> tuple[Index, Floats, Index]:
    """Labels that follow from probabilities, and whose rows they are; some sites have none."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 5))
    rows = int(rng.integers(50, 3000))
    scores = rng.normal(size=(rows, classes)) * rng.choice([0.3, 1, 5])
    scores[:, 0] += rng.choice([0, 4])  # the others are rare
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    thresholds = rng.random((rows, 1))
    y = (probabilities.cumsum(1) < thresholds).sum(1).clip(0, classes - 1)
    return y, probabilities, rng.integers(0, SITES - seed % 2, rows)


@pytest.mark.parametrize("seed", range(50))
def test_merged_sites_are_as_good_as_pooled_rows_within_the_stated_error(seed: int) -> None:
    y, probabilities, site = draw_case(seed)
    sums = [ClassSums.of(y[site == k], probabilities[site == k]) for k in range(SITES)]
    together = reduce(add, sums)
    merged = together.metrics()
    errors = together.errors()
    pooled = measure_classes(y, probabilities.argmax(1), probabilities)
    assert merged.keys() == pooled.keys()
    for name, values in pooled.items():
        assert merged[name] == pytest.approx(values[0], abs=errors[name] + 1e-12, nan_ok=True), name
        is_exact = METRICS[name].merges == "exactly, from sums"
        assert (errors[name] == 0 or np.isnan(errors[name])) or not is_exact
        assert not errors[name] > 0.03, name


def test_the_stated_error_is_reached_where_a_bin_hides_the_order() -> None:
    """0.5 and 0.501 are in one bin, so of one pair nobody knows which is higher."""
    y = np.array([0, 1])
    probabilities = np.array([[0.5, 0.5], [0.499, 0.501]])
    sums = ClassSums.of(y, probabilities)
    assert (sums.metrics()["auc"], sums.errors()["auc"]) == (0.5, 0.5)


def test_probabilities_of_0_and_1_have_bins_too() -> None:
    y = np.array([0, 1, 1])
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    sums = ClassSums.of(y, probabilities)
    assert sums.metrics()["auc"] == 1
    assert sums.errors()["auc"] == 0


def test_sums_over_other_classes_are_refused() -> None:
    two = ClassSums.of(np.array([0, 1]), np.full((2, 2), 0.5))
    three = ClassSums.of(np.array([0, 1]), np.full((2, 3), 1 / 3))
    with pytest.raises(DataError, match=r"got 2 classes .* and 3"):
        two + three
    other = ClassSums.of(np.array([0, 1]), np.full((2, 2), 0.5), positive=0)
    with pytest.raises(DataError, match="the same positive one"):
        two + other


def test_merged_numbers_are_as_pooled_ones() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(50, 9, 400)
    predicted = y + rng.normal(0, 3, 400)
    site = rng.integers(0, SITES, 400)
    sums = [NumberSums.of(y[site == k], predicted[site == k]) for k in range(SITES)]
    merged = reduce(add, sums).metrics()
    pooled = measure_numbers(y, predicted)
    assert merged == pytest.approx({name: values[0] for name, values in pooled.items()}, rel=1e-9)


def test_no_rows_have_no_figures() -> None:
    sums = ClassSums.of(np.zeros(0, np.int64), np.zeros((0, 2)))
    assert all(np.isnan(value) for value in sums.metrics().values())
    numbers = NumberSums.of(np.zeros(0), np.zeros(0)).metrics()
    assert all(np.isnan(value) for value in numbers.values())


def test_equal_scores_may_be_better_than_any_order_and_the_error_covers_that() -> None:
    """Tied positives are found together, at the precision of all of them."""
    y = np.array([0, 1, 1])
    scores = np.array([0.9, 0.5, 0.5])
    sums = ClassSums.of(y, np.stack([1 - scores, scores], 1))
    pooled = measure_classes(y, (scores > 0.5).astype(int), np.stack([1 - scores, scores], 1))
    exact = float(pooled["average_precision"][0])
    stated = sums.errors()["average_precision"]
    assert exact == pytest.approx(2 / 3)
    assert abs(sums.metrics()["average_precision"] - exact) <= stated + 1e-12
    assert stated > 0


@pytest.mark.parametrize("seed", range(20))
def test_the_stated_error_covers_scores_with_many_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.1, 0.101, 0.102, 0.5, 0.9], 40)
    y = (rng.random(40) < 0.3).astype(int)
    probabilities = np.stack([1 - scores, scores], 1)
    sums = ClassSums.of(y, probabilities)
    pooled = measure_classes(y, probabilities.argmax(1), probabilities)
    for name in ("auc", "average_precision"):
        assert abs(sums.metrics()[name] - pooled[name][0]) <= sums.errors()[name] + 1e-12


def test_the_positive_class_may_be_the_first_one() -> None:
    y, probabilities, _ = draw_case(0)
    probabilities = probabilities[:, :2] / probabilities[:, :2].sum(1, keepdims=True)
    y = y.clip(0, 1)
    merged = ClassSums.of(y, probabilities, positive=0)
    pooled = measure_classes(y, probabilities.argmax(1), probabilities, positive=0)
    for name, value in merged.metrics().items():
        assert value == pytest.approx(pooled[name][0], abs=merged.errors()[name] + 1e-12), name


def test_large_numbers_with_a_small_spread_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    y = 1.7e9 + rng.normal(0, 100, 500)
    predicted = y + rng.normal(0, 10, 500)
    merged = (
        NumberSums.of(y[:200], predicted[:200]) + NumberSums.of(y[200:], predicted[200:])
    ).metrics()
    assert merged["r2"] == pytest.approx(measure_numbers(y, predicted)["r2"][0], abs=1e-9)


def test_probabilities_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="got NaN; leave those rows out"):
        ClassSums.of(np.array([0, 1]), np.full((2, 2), np.nan))
