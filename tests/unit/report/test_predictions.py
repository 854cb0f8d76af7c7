"""What a run's model says of new rows: labels, numbers, probabilities, and a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from patients import DOSE, ILL, WELL, a_study_of, days_in_hospital, rarely_ill, told_apart

import tacit
from tacit.core.errors import DataError, StudyError


@pytest.fixture(scope="module")
def new_rows() -> pd.DataFrame:
    """Rows in another order, with an index of their own and a column too many."""
    rows = rarely_ill(200).drop(columns="outcome")
    rows.index = pd.RangeIndex(1000, 1200)
    return rows[["ward", "sex", "region", DOSE, "age"]].assign(note="?")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    """Three classes that are numbers, and clients with models of their own."""
    folder = tmp_path_factory.mktemp("three")
    frame = told_apart(300, classes=3)
    codes = {"asthma": 10, "bronchitis": 20, "cough": 30}
    frame["outcome"] = frame["outcome"].map(codes)
    frame["site"] = np.random.default_rng(1).choice(["Oulu", "Turku"], len(frame))
    task = {"task": "classification", "client": "site"}
    settings = a_study_of(frame, folder / "rows.csv", "outcome", **task)
    own = {"split": "by_client", "clients": 2, "algorithm": "fedplus"}
    return tacit.run({**settings, **own}, folder / "study")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    folder = tmp_path_factory.mktemp("numbers")
    settings = a_study_of(days_in_hospital(), folder / "rows.csv", "days", task="regression")
    return tacit.run(settings, folder / "study")


def test_probabilities_are_those_of_the_model(
    screening: tacit.Results, new_rows: pd.DataFrame
) -> None:
    run = screening.best()
    proba = screening.predict(run, new_rows, proba=True)
    assert list(proba) == [ILL, WELL]
    assert proba.index.equals(new_rows.index)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    encoding = screening.encoding_of(run)
    assert encoding is not None
    with torch.no_grad():
        expected = screening.model(run)(encoding.apply(new_rows)).softmax(1)
    np.testing.assert_allclose(proba, expected, rtol=1e-6)


def test_columns_and_labels_have_the_tables_own_type(three: tacit.Results) -> None:
    rows = told_apart(30, classes=3)
    proba = three.predict(three.best(), rows, proba=True)
    assert proba.columns.tolist() == [10, 20, 30]
    assert proba.columns.dtype.kind == "i"
    labels = three.predict(three.best(), rows)
    assert labels.tolist() == proba.idxmax(axis=1).tolist()
    assert labels.name == "outcome"


def test_the_threshold_sets_exactly_the_rows_from_this_probability_on(
    screening: tacit.Results, new_rows: pd.DataFrame
) -> None:
    run = screening.best()
    risk = screening.predict(run, new_rows, proba=True)[ILL].astype(float)
    assert 0 < risk.min() < risk.max() < 1
    usual = screening.predict(run, new_rows)
    assert usual.tolist() == screening.predict(run, new_rows, threshold=0.5).tolist()
    for threshold in (0.0, 0.05, risk.median(), risk.iloc[7], risk.max(), 1.0):
        chosen = screening.predict(run, new_rows, threshold=threshold)
        assert chosen.index.equals(new_rows.index)
        expected = np.where(risk >= threshold, ILL, WELL)
        assert chosen.tolist() == expected.tolist()
    assert (screening.predict(run, new_rows, threshold=risk.max()) == ILL).sum() == 1


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_probability(
    screening: tacit.Results, new_rows: pd.DataFrame, threshold: float
) -> None:
    with pytest.raises(StudyError, match="expected a probability from 0 to 1, got"):
        screening.predict(screening.best(), new_rows, threshold=threshold)


def test_a_threshold_and_probabilities_exclude_each_other(
    screening: tacit.Results, new_rows: pd.DataFrame
) -> None:
    with pytest.raises(StudyError, match="leave one out"):
        screening.predict(screening.best(), new_rows, threshold=0.5, proba=True)


def test_rows_may_be_a_file(
    screening: tacit.Results, new_rows: pd.DataFrame, tmp_path: Path
) -> None:
    new_rows.to_csv(tmp_path / "new.csv", index=False)
    run = screening.best()
    expected = screening.predict(run, new_rows)
    for path in (tmp_path / "new.csv", str(tmp_path / "new.csv")):
        assert screening.predict(run, path).tolist() == expected.tolist()
    with pytest.raises(DataError, match="does not exist"):
        screening.predict(run, tmp_path / "none.csv")


def test_rows_may_be_an_array_with_the_training_columns(numbers: tacit.Results) -> None:
    rows = days_in_hospital(40)[["age", "noise"]]
    run = numbers.best()
    expected = numbers.predict(run, rows)
    np.testing.assert_allclose(numbers.predict(run, rows.to_numpy()), expected, rtol=1e-6)
    with pytest.raises(StudyError, match=r"the 2 columns age, noise; got the shape \(40, 1\)"):
        numbers.predict(run, rows[["age"]].to_numpy())


def test_no_rows_have_no_predictions(
    screening: tacit.Results, numbers: tacit.Results, new_rows: pd.DataFrame
) -> None:
    run = screening.best()
    nobody = new_rows.head(0)
    assert len(screening.predict(run, nobody)) == 0
    assert len(screening.predict(run, nobody, threshold=0.2)) == 0
    assert screening.predict(run, nobody, proba=True).shape == (0, 2)
    assert len(numbers.predict(numbers.best(), days_in_hospital().head(0))) == 0


def test_numbers_have_no_probabilities_and_no_threshold(numbers: tacit.Results) -> None:
    rows = days_in_hospital(20)
    predicted = numbers.predict(numbers.best(), rows)
    assert np.abs(predicted - rows["days"]).mean() < np.abs(rows["days"] - 12).mean()
    with pytest.raises(StudyError, match="days is a number, so there are no probabilities"):
        numbers.predict(numbers.best(), rows, proba=True)
    with pytest.raises(StudyError, match="days has no classes; leave it out"):
        numbers.predict(numbers.best(), rows, threshold=0.5)


def test_three_classes_have_no_threshold(three: tacit.Results) -> None:
    with pytest.raises(StudyError, match="outcome has 3 classes; leave it out"):
        three.predict(three.best(), told_apart(9, classes=3), threshold=0.5)


def test_a_clients_own_model_answers(three: tacit.Results) -> None:
    rows = told_apart(30, classes=3)
    run = three.best()
    encoding = three.encoding_of(run)
    assert encoding is not None
    answers: list[Any] = [three.predict(run, rows, proba=True)]
    for client in (0, 1):
        proba = three.predict(run, rows, client=client, proba=True)
        with torch.no_grad():
            own = three.model(run, client=client)(encoding.apply(rows)).softmax(1)
        np.testing.assert_allclose(proba, own, rtol=1e-6)
        answers.append(proba)
    by_name = three.predict(run, rows, client=three.client_names(run)[1], proba=True)
    assert by_name.equals(answers[2])
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(answers[first], answers[second])
    with pytest.raises(StudyError, match="no client is called 'Turko'; did you mean Turku"):
        three.predict(run, rows, client="Turko")


def test_a_missing_column_is_named(screening: tacit.Results, new_rows: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="the rows have no column 'age'"):
        screening.predict(screening.best(), new_rows.drop(columns="age"))
