"""What a report says first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from patients import (
    FEMALE,
    ILL,
    a_study_of,
    days_in_hospital,
    rarely_ill,
    served_unequally,
    told_apart,
)
from stored import a_copy

import tacit
from tacit.data.datasets import Dataset
from tacit.report.findings import Finding, find

FAST_LEARNER = {"optimiser": {"name": "adam", "lr": 0.1}, "rounds": 3}


def warnings_of(results: tacit.Results) -> list[str]:
    return [finding.text for finding in find(results) if finding.is_warning]


def lacking(test_y: torch.Tensor) -> Dataset:
    """Three classes, with these test rows."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 3
    x = torch.randn(120, 3, generator=draw)
    return Dataset("lacking", x, y, x[:40].clone(), test_y, ("a", "b", "c"))


def lacking_b() -> Dataset:
    return lacking(torch.arange(40) % 2 * 2)


def lacking_b_and_c() -> Dataset:
    return lacking(torch.zeros(40, dtype=torch.int64))


def test_a_rare_class_is_named_with_the_metric_that_suits_it(screening: tacit.Results) -> None:
    first, second, *_ = screening.findings()
    assert first == (
        f"ROC AUC decides, since {ILL} is rare (4.0% of the rows of rows.csv), and accuracy praises"
        " a model that never finds it"
    )
    best = screening.best()
    table: Any = screening.table()
    figure = table.to_numpy().max()
    assert figure == table.loc[screening.names[best], screening.column_of(best)]
    assert second.startswith(f"the best is {screening.names[best]} with ROC AUC {figure:.4f} on ")
    assessment = screening.assessment(best)
    assert assessment is not None
    low, high = assessment["bootstrap"]["intervals"]["auc"]
    assert f"(95 % interval {low:.4f} to {high:.4f}); always well & fit has 0.5000" in second


def test_a_model_that_finds_few_of_the_rare_class_is_warned_of(screening: tacit.Results) -> None:
    assessment = screening.assessment(screening.best())
    assert assessment is not None
    (caught, _), (alarms, _) = assessment["confusion"]
    assert assessment["metrics"]["accuracy"] < 0.965
    missed, hardly = warnings_of(screening)
    assert missed.startswith(
        f"of 24 test rows of {ILL} fedavg finds {caught}, and takes {alarms} others for {ILL};"
        " weigh"
    )
    accuracy = assessment["metrics"]["accuracy"]
    assert hardly == (
        f"its accuracy, {accuracy:.4f}, is the same as that of always well & fit, 0.9600"
    )


def test_of_a_class_that_is_found_it_is_said_without_a_warning(tmp_path: Path) -> None:
    frame = rarely_ill(1500)
    frame["age"] += 6 * (frame["outcome"] == ILL)
    settings = a_study_of(frame, tmp_path / "rows.csv", "outcome")
    results = tacit.run({**settings, **FAST_LEARNER}, tmp_path / "study")
    assert "of 12 test rows of" in " ".join(results.findings())
    assert warnings_of(results) == []


@pytest.mark.parametrize("classes", [2, 3])
def test_a_good_model_is_not_warned_of(tmp_path: Path, classes: int) -> None:
    settings = a_study_of(told_apart(classes=classes), tmp_path / "rows.csv", "outcome")
    results = tacit.run({**settings, **FAST_LEARNER}, tmp_path / "study")
    assert warnings_of(results) == []
    text = results.findings()[0]
    assert text.startswith("fedavg has accuracy 0.9")
    assert "; always " in text
    found = [sentence for sentence in results.findings() if " finds " in sentence]
    assert len(found) == (1 if classes == 2 else 0)


def test_of_numbers_only_the_fit_is_told(tmp_path: Path) -> None:
    settings = a_study_of(days_in_hospital(), tmp_path / "rows.csv", "days", task="regression")
    good = tacit.run({**settings, **FAST_LEARNER}, tmp_path / "good")
    (text,) = good.findings()
    assert text.startswith("fedavg has R² 0.9")
    assert "; always 11.9 has " in text
    blind = {**settings, "dataset": {**settings["dataset"], "drop": ["age"]}}
    bad = tacit.run({**blind, **FAST_LEARNER}, tmp_path / "bad")
    (warning,) = warnings_of(bad)
    assert warning.startswith("its R², ")
    assert " that of always 11.9" in warning


def test_the_groups_that_are_served_unequally_are_named(tmp_path: Path) -> None:
    frame = served_unequally()
    settings = a_study_of(
        frame, tmp_path / "rows.csv", "outcome", fairness=["sex"], drop=["sex"], test_share=0.5
    )
    results = tacit.run({**settings, **FAST_LEARNER}, tmp_path / "study")
    groups = results.groups(results.best(), "sex").query("client == 'all'").set_index("group")
    assert set(groups.index) == {"male", "female", "diverse"}
    assert 0 < groups.loc["diverse", "rows"] < 20
    (text,) = [text for text in results.findings() if text.startswith("by sex")]
    women: Any = groups.loc["female"]
    men: Any = groups.loc["male"]
    assert men["accuracy"] - women["accuracy"] > 0.3
    assert text == (
        f"by sex, accuracy goes from {women['accuracy']:.4f} (female, {women['rows']} rows) to"
        f" {men['accuracy']:.4f} (male, {men['rows']} rows)"
    )


def test_nothing_is_said_of_groups_with_too_few_rows(screening: tacit.Results) -> None:
    groups = screening.groups(screening.best(), "ward")
    assert set(groups["group"]) == {"main", "attic"}
    assert not [text for text in screening.findings() if text.startswith("by ward")]
    (by_sex,) = [text for text in screening.findings() if text.startswith("by sex")]
    assert FEMALE in by_sex


def test_of_three_classes_groups_with_enough_rows_are_told(tmp_path: Path) -> None:
    frame = told_apart(300, classes=3)
    numbers = pd.Series(range(300))
    frame["ward"] = (numbers % 30 < 3).map({True: "attic", False: "main"})
    frame["floor"] = (numbers % 30 < 15).map({True: "first", False: "second"})
    settings = a_study_of(
        frame, tmp_path / "rows.csv", "outcome", fairness=["ward", "floor"], drop=["ward", "floor"]
    )
    results = tacit.run(settings, tmp_path / "study")
    wards = results.groups(results.best(), "ward").query("client == 'all'")
    assert sorted(wards["group"]) == ["attic", "main"]
    assert 0 < wards["rows"].min() < 20
    told = [text.split(",")[0] for text in results.findings() if text.startswith("by ")]
    assert told == ["by floor"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("lacking_b", "the test set has no row of b"),
        (
            "lacking_b_and_c",
            "the test set has no row of b, c, so no model has a ROC AUC; choose another metric",
        ),
    ],
)
def test_a_class_without_test_rows_is_told_and_the_report_is_written(
    tmp_path: Path, source: str, sentence: str
) -> None:
    settings = {"model": "linear", "clients": 2, "rounds": 1, "local_test": 0.2, "metric": "auc"}
    dataset = {"name": "function", "path": f"{__name__}:{source}"}
    results = tacit.run({**settings, "dataset": dataset}, tmp_path / "study")
    assert Finding(sentence, is_warning=True) in find(results)
    assert f'<li class="warning">T{sentence[1:]}.</li>' in results.report.read_text()
    assert (results.best_if_any() is None) == (source == "lacking_b_and_c")


def test_a_positive_class_without_test_rows_is_told(
    screening: tacit.Results, tmp_path: Path
) -> None:
    copy = a_copy(screening, tmp_path)
    path = copy.folder / "data.json"
    data = json.loads(path.read_text())
    data["datasets"][0]["test_counts"][0] = 0
    path.write_text(json.dumps(data))
    for file in (copy.folder / "assessments").iterdir():
        saved = json.loads(file.read_text())
        saved["confusion"][0] = [0, 0]
        file.write_text(json.dumps(saved))
    texts = tacit.Results(copy.folder).findings()
    assert f"the test set has no row of {ILL}" in texts
    assert not [text for text in texts if ", and takes " in text]


def test_probabilities_that_mislead_are_warned_of(tmp_path: Path) -> None:
    settings = a_study_of(told_apart(120), tmp_path / "rows.csv", "outcome")
    results = tacit.run({**settings, "rounds": 1}, tmp_path / "study")
    assessment = results.assessment(results.best())
    assert assessment is not None
    error = assessment["calibration"]["error"]
    assert error > 0.1
    assert any(f"are off by {error:.2f} on average" in text for text in warnings_of(results))


def test_differences_are_counted(screening: tacit.Results) -> None:
    real = int(screening.differences()["is_real"].sum())
    count = {0: "none is", 1: "1 is", 2: "2 are"}[real]
    assert screening.findings()[-1] == (
        f"of 2 differences to the best of a column, {count} larger than chance, by draws of the"
        " test rows"
    )
