"""Metrics equal scikit-learn's, for one group of rows and for many at once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as theirs

from tacit.core.arrays import Floats, Index
from tacit.training import metrics
from tacit.training.metrics import METRICS, measure_classes, measure_numbers, metrics_of

CASES = range(50)


def draw_case(seed: int) -> tuple[Index, Floats]:
    """Labels and probabilities: with ties, few rows, absent classes and float32 by turns."""
    rng = np.random.default_rng(seed)
    classes = 2 if seed % 2 else int(rng.integers(3, 6))
    rows = int(rng.integers(4, 300))
    y = rng.integers(0, classes, rows)
    if seed % 5 == 0:
        y[y == classes - 1] = 0
    probabilities = rng.dirichlet(np.ones(classes), rows)
    if seed % 3 == 0:
        probabilities = probabilities.round(1)
    if seed % 4 == 0:
        probabilities = probabilities.astype(np.float32)
    return y, probabilities


def sklearn_figures(y: Index, predicted: Index, probabilities: Floats) -> dict[str, float]:
    """The same by scikit-learn; NaN where it warns that a figure is not defined."""
    classes = probabilities.shape[1]
    doubles = probabilities.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = {
            "accuracy": theirs.accuracy_score(y, predicted),
            "balanced_accuracy": theirs.balanced_accuracy_score(y, predicted),
        }
        if classes == 2:
            is_there = bool((y == 1).any())
            has_both = is_there and bool((y == 0).any())
            figures["auc"] = theirs.roc_auc_score(y, doubles[:, 1]) if has_both else np.nan
            area = theirs.average_precision_score(y, doubles[:, 1]) if is_there else np.nan
            figures["average_precision"] = area
            figures["f1"] = theirs.f1_score(y, predicted)
            figures["sensitivity"] = theirs.recall_score(y, predicted) if is_there else np.nan
            precision = theirs.precision_score(y, predicted)
            figures["precision"] = precision if (predicted == 1).any() else np.nan
            absent = not (y == 0).any()
            specificity = theirs.recall_score(y, predicted, pos_label=0)
            figures["specificity"] = np.nan if absent else specificity
            squares = np.square(doubles[:, 1] - y)
        else:
            known = [c for c in range(classes) if 0 < (y == c).sum() < len(y)]
            areas = [theirs.roc_auc_score(y == c, doubles[:, c]) for c in known]
            figures["auc"] = np.mean(areas)
            there = [c for c in range(classes) if (y == c).any()]
            areas = [theirs.average_precision_score(y == c, doubles[:, c]) for c in there]
            figures["average_precision"] = np.mean(areas)
            figures["f1"] = theirs.f1_score(y, predicted, average="macro")
            squares = np.square(doubles - np.eye(classes)[y]).sum(1)
    return {**figures, "brier": squares.mean()}


@pytest.mark.parametrize("seed", CASES)
def test_every_metric_of_classes_equals_that_of_scikit_learn(seed: int) -> None:
    y, probabilities = draw_case(seed)
    predicted = probabilities.argmax(1)
    ours = measure_classes(y, predicted, probabilities)
    expected = sklearn_figures(y, predicted, probabilities)
    assert ours.keys() == expected.keys()
    for name, values in ours.items():
        assert values[0] == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name


def test_the_brier_score_of_two_classes_is_that_of_scikit_learn() -> None:
    y, probabilities = draw_case(1)
    (brier,) = measure_classes(y, probabilities.argmax(1), probabilities)["brier"]
    assert brier == pytest.approx(theirs.brier_score_loss(y, probabilities[:, 1]), abs=1e-12)


def test_the_positive_class_may_be_the_first_one() -> None:
    y, probabilities = draw_case(7)
    predicted = probabilities.argmax(1)
    ours = measure_classes(y, predicted, probabilities, positive=0)
    expected = sklearn_figures(1 - y, 1 - predicted, probabilities[:, ::-1])
    for name, values in ours.items():
        assert values[0] == pytest.approx(expected[name], abs=1e-12), name


@pytest.mark.parametrize("seed", [1, 2, 9, 12])
def test_many_groups_at_once_are_as_each_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    y, probabilities = draw_case(seed)
    predicted = probabilities.argmax(1)
    group = np.random.default_rng(0).integers(0, 4, len(y)) * 2  # every other one has no rows
    together = measure_classes(y, predicted, probabilities, group=group, groups=8)
    monkeypatch.setattr(metrics, "KEYS", len(y))  # one class in a sort
    for number in range(8):
        rows = group == number
        for name, values in together.items():
            if not rows.any():
                assert np.isnan(values[number]), name
                continue
            alone = measure_classes(y[rows], predicted[rows], probabilities[rows])
            assert values[number] == pytest.approx(alone[name][0], abs=1e-12, nan_ok=True), name


def test_what_needs_no_sort_can_be_had_alone() -> None:
    y, probabilities = draw_case(2)
    quick = measure_classes(y, probabilities.argmax(1), probabilities, ranked=False)
    assert "accuracy" in quick
    assert not quick.keys() & {"auc", "average_precision"}


@pytest.mark.parametrize("seed", CASES)
def test_every_metric_of_numbers_equals_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(3, 2, int(rng.integers(3, 200)))
    predicted = y + rng.normal(0, rng.choice([0.1, 3]), len(y))
    ours = measure_numbers(y, predicted, unit=2.5)
    assert ours["r2"][0] == pytest.approx(theirs.r2_score(y, predicted), abs=1e-12)
    rmse = 2.5 * theirs.root_mean_squared_error(y, predicted)
    assert ours["rmse"][0] == pytest.approx(rmse, abs=1e-12)
    mae = 2.5 * theirs.mean_absolute_error(y, predicted)
    assert ours["mae"][0] == pytest.approx(mae, abs=1e-12)


def test_numbers_in_groups_are_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    predicted = y + rng.normal(size=60)
    group = rng.integers(0, 3, 60)
    together = measure_numbers(y, predicted, group=group, groups=4)
    for number in range(3):
        alone = measure_numbers(y[group == number], predicted[group == number])
        for name, values in together.items():
            assert values[number] == pytest.approx(alone[name][0], abs=1e-12), name
    assert all(np.isnan(values[3]) for values in together.values())


def test_r2_may_divide_by_another_variance() -> None:
    y: NDArray[np.float64] = np.array([1.0, 1.0])
    assert np.isnan(measure_numbers(y, y + 1)["r2"][0])
    assert measure_numbers(y, y + 1, variance=4.0)["r2"][0] == 0.75


def test_every_metric_is_measured_for_the_tasks_that_it_names() -> None:
    for classes in (2, 3):
        y = np.arange(12) % classes
        probabilities = np.random.default_rng(0).dirichlet(np.ones(classes), 12)
        figures = measure_classes(y, probabilities.argmax(1), probabilities)
        assert list(figures) == [metric.name for metric in metrics_of("classification", classes)]
    figures = measure_numbers(np.arange(3.0), np.arange(3.0) + 1)
    assert list(figures) == [metric.name for metric in metrics_of("regression", 0)]
    assert METRICS["rmse"].merit(2.0) == -2.0
    assert METRICS["auc"].merit(2.0) == 2.0
