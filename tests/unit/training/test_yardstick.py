"""Which metric decides, and how answers are measured by all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.core.errors import StudyError
from tacit.data.dataset import Dataset
from tacit.training.evaluation import Answers
from tacit.training.yardstick import Yardstick, check_metric, choose_metric


def classes_of(counts: list[int]) -> Dataset:
    """A data set with so many rows of each class."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    x = torch.zeros(len(y), 1)
    labels = tuple(f"class {code}" for code in range(len(counts)))
    return Dataset("some", x, y, x, y, labels=labels)


def numbers() -> Dataset:
    y = torch.arange(4.0)
    x = torch.zeros(4, 1)
    return Dataset("stays", x, y, x, y, task="regression", target_spread=2.0)


@pytest.mark.parametrize(
    ("counts", "metric"),
    [([50, 50], "accuracy"), ([74, 26], "accuracy"), ([76, 24], "auc"), ([30, 40, 5], "auc")],
)
def test_a_rare_class_makes_the_area_under_the_roc_curve_decide(
    counts: list[int], metric: str
) -> None:
    assert choose_metric(classes_of(counts)).name == metric


def test_numbers_are_decided_by_r2() -> None:
    assert choose_metric(numbers()).name == "r2"


def test_a_metric_that_does_not_suit_the_data_is_refused_with_those_that_do() -> None:
    with pytest.raises(StudyError, match=r"metric rmse does not suit some, .* 2 classes; use one"):
        choose_metric(classes_of([5, 5]), "rmse")
    with pytest.raises(StudyError, match=r"sensitivity does not suit .* 3 classes"):
        choose_metric(classes_of([5, 5, 5]), "sensitivity")
    with pytest.raises(StudyError, match="auc does not suit stays, which is for regression"):
        choose_metric(numbers(), "auc")
    with pytest.raises(StudyError, match="no metric 'acuracy'; did you mean accuracy"):
        check_metric("acuracy")


def test_the_metric_that_decides_comes_first() -> None:
    yardstick = Yardstick.of(classes_of([5, 5]), "brier")
    assert yardstick.name == yardstick.names[0] == "brier"
    assert len(yardstick.names) == len(set(yardstick.names)) == 9
    assert yardstick.no_figures == dict.fromkeys(yardstick.names)


def test_a_group_with_an_answer_that_is_no_number_has_no_figures() -> None:
    predicted = torch.tensor([[0.2, 0.8], [0.7, 0.3], [float("nan"), 0.5], [0.1, 0.9]])
    answers = Answers(torch.zeros(4), predicted, torch.tensor([1, 0, 0, 1]))
    y = torch.tensor([1, 0, 0, 1])
    group = np.array([0, 0, 1, 1])
    yardstick = Yardstick.of(classes_of([5, 5]))
    figures = yardstick.measure(answers, y, group, 2)
    assert yardstick.figures(figures, 0)["accuracy"] == 1
    assert set(yardstick.figures(figures, 1).values()) == {None}


def test_errors_are_in_the_units_of_the_target() -> None:
    answers = Answers(torch.zeros(4), torch.arange(4.0) + 1.5, torch.zeros(0, dtype=torch.int64))
    yardstick = Yardstick.of(numbers())
    figures = yardstick.figures(yardstick.measure(answers, torch.arange(4.0)))
    assert (figures["rmse"], figures["mae"]) == (3.0, 3.0)
    assert figures["r2"] == pytest.approx(1 - 1.5**2 / 1.25)
