"""All metrics side by side, as scikit-learn has them, and those of a mere guess."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from patients import a_study_of, days_in_hospital, told_apart
from playground import FAST
from sklearn import metrics as scikit
from sklearn.dummy import DummyClassifier, DummyRegressor

import tacit
from tacit.data.dataset import Dataset


def dataset_of(results: tacit.Results, run: str) -> Dataset:
    dataset: Dataset = results.runs[run].dataset.load()
    return dataset


def probabilities_of(results: tacit.Results, run: str) -> NDArray[Any]:
    """What the run's model says of the global test set."""
    with torch.no_grad():
        output = results.model(run)(dataset_of(results, run).test_x)
    return output.double().softmax(-1).numpy()


def class_figures(
    y: NDArray[Any], probabilities: NDArray[Any], positive: int | None
) -> dict[str, float]:
    """The metrics of classes by scikit-learn."""
    predicted = probabilities.argmax(1)
    indicator = np.eye(probabilities.shape[1])[y]
    figures = {
        "accuracy": scikit.accuracy_score(y, predicted),
        "balanced_accuracy": scikit.balanced_accuracy_score(y, predicted),
    }
    if positive is None:
        figures["auc"] = scikit.roc_auc_score(y, probabilities, multi_class="ovr")
        figures["average_precision"] = scikit.average_precision_score(indicator, probabilities)
        figures["f1"] = scikit.f1_score(y, predicted, average="macro")
        figures["brier"] = ((probabilities - indicator) ** 2).sum(1).mean()
        return figures
    scores = probabilities[:, positive]
    is_positive = y == positive
    says_so = predicted == positive
    figures["auc"] = scikit.roc_auc_score(is_positive, scores)
    figures["average_precision"] = scikit.average_precision_score(is_positive, scores)
    figures["f1"] = scikit.f1_score(is_positive, says_so)
    figures["sensitivity"] = scikit.recall_score(is_positive, says_so)
    figures["specificity"] = scikit.recall_score(~is_positive, ~says_so)
    figures["brier"] = scikit.brier_score_loss(is_positive, scores)
    precision = scikit.precision_score(is_positive, says_so) if says_so.any() else np.nan
    figures["precision"] = precision
    return figures


def number_figures(y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
    return {
        "r2": scikit.r2_score(y, predicted),
        "rmse": math.sqrt(scikit.mean_squared_error(y, predicted)),
        "mae": scikit.mean_absolute_error(y, predicted),
    }


def assert_row(results: tacit.Results, label: str, expected: Mapping[str, float]) -> None:
    row: Any = results.all_metrics().loc[label]
    assert set(row.index) == set(expected)
    assert row.to_dict() == pytest.approx(dict(expected), abs=2e-6, nan_ok=True)


def test_the_figures_of_a_rare_class_are_those_of_scikit_learn(screening: tacit.Results) -> None:
    for run in screening.labels:
        dataset = dataset_of(screening, run)
        probabilities = probabilities_of(screening, run)
        figures = class_figures(dataset.test_y.numpy(), probabilities, dataset.positive_class)
        assert_row(screening, f"{screening.names[run]}, {screening.column_of(run)}", figures)
    assert next(iter(screening.all_metrics())) == "auc"  # that which decides stands first


def test_the_guess_at_a_rare_class_is_that_of_scikit_learn(screening: tacit.Results) -> None:
    dataset = dataset_of(screening, screening.best())
    guess = DummyClassifier(strategy="prior").fit(dataset.x, dataset.y)
    test_y = dataset.test_y.numpy()
    figures = class_figures(test_y, guess.predict_proba(dataset.test_x), dataset.positive_class)
    assert_row(screening, "always well & fit", figures)


def test_three_classes_and_the_guess_at_them_are_those_of_scikit_learn(tmp_path: Path) -> None:
    settings = a_study_of(told_apart(classes=3)[:450], tmp_path / "rows.csv", "outcome")
    results = tacit.run(settings, tmp_path / "study")
    run = results.best()
    dataset = dataset_of(results, run)
    test_y = dataset.test_y.numpy()
    assert_row(results, "fedavg", class_figures(test_y, probabilities_of(results, run), None))
    guess = DummyClassifier(strategy="prior").fit(dataset.x, dataset.y)
    figures = class_figures(test_y, guess.predict_proba(dataset.test_x), None)
    most_frequent = dataset.labels[int(dataset.y.bincount().argmax())]
    assert_row(results, f"always {most_frequent}", figures)


def test_numbers_and_their_mean_are_those_of_scikit_learn_in_the_targets_units(
    tmp_path: Path,
) -> None:
    frame = days_in_hospital()
    settings = a_study_of(frame, tmp_path / "rows.csv", "days", task="regression")
    results = tacit.run(settings, tmp_path / "study")
    dataset = dataset_of(results, results.best())
    train_y = dataset.y.double().numpy() * dataset.target_spread + dataset.target_centre
    test_y = dataset.test_y.double().numpy() * dataset.target_spread + dataset.target_centre
    with torch.no_grad():
        output = results.model(results.best())(dataset.test_x)[:, 0].double().numpy()
    predicted = output * dataset.target_spread + dataset.target_centre
    assert_row(results, "fedavg", number_figures(test_y, predicted))
    guess = DummyRegressor().fit(dataset.x, train_y)
    assert_row(
        results, f"always {train_y.mean():.4g}", number_figures(test_y, guess.predict(test_y))
    )
    assert abs(test_y.mean() - frame["days"].mean()) < 1


def test_rows_are_methods_by_columns_the_reference_and_the_guess(results: tacit.Results) -> None:
    rows = list(results.all_metrics().index)
    methods = [f"{method}, {split}" for method in results.methods for split in results.column_names]
    assert rows[:-1] == [*methods, "centralised"]
    assert rows[-1].startswith("always ")
    by_cell = results.table()
    frame = results.all_metrics()["accuracy"]
    for method in results.methods:
        for split in results.column_names:
            assert frame[f"{method}, {split}"] == by_cell.loc[method, split]


def test_with_one_column_a_row_is_a_method(tmp_path: Path) -> None:
    alone = tacit.run({**FAST, "algorithm": ["fedavg", "fedsgd"]}, tmp_path / "study")
    assert list(alone.all_metrics().index)[:2] == ["fedavg", "fedsgd"]
