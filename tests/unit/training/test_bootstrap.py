"""Intervals by drawing the test rows again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tacit.training import bootstrap
from tacit.training.bootstrap import DRAWS, draw_again, interval
from tacit.training.evaluation import Answers
from tacit.training.metrics import METRICS
from tacit.training.yardstick import Yardstick

ACCURACY = Yardstick(METRICS["accuracy"], 2)


def answers_right_in(share: float, rows: int) -> tuple[Answers, torch.Tensor]:
    """Answers of a model that is right in this share of the rows."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 2, rows))
    is_right = torch.arange(rows) < share * rows
    classes = torch.where(is_right, y, 1 - y)
    predicted = torch.nn.functional.one_hot(classes, 2).float() * 0.8 + 0.1
    return Answers(torch.zeros(rows), predicted, classes), y


@pytest.mark.parametrize("rows", [200, 20_000])
def test_the_draws_scatter_as_the_binomial_distribution_says(rows: int) -> None:
    draws = draw_again(ACCURACY, *answers_right_in(0.8, rows))
    expected = math.sqrt(0.8 * 0.2 / rows)
    assert len(draws["accuracy"]) == DRAWS
    assert draws["accuracy"].std() == pytest.approx(expected, rel=0.2)
    assert draws["accuracy"].mean() == pytest.approx(0.8, abs=expected)


def test_models_are_compared_on_the_same_draws() -> None:
    """The better model is right wherever the other is, so it is ahead in every draw."""
    good = draw_again(ACCURACY, *answers_right_in(0.65, 300))["accuracy"]
    poor = draw_again(ACCURACY, *answers_right_in(0.6, 300))["accuracy"]
    gaps = good - poor
    assert (gaps >= 0).all()
    assert gaps.std() < 0.5 * math.hypot(good.std(), poor.std())


def test_draws_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, y = answers_right_in(0.7, 150)
    whole = draw_again(ACCURACY, answers, y)
    monkeypatch.setattr(bootstrap, "NUMBERS", 150 * 2 * 7)
    in_parts = draw_again(ACCURACY, answers, y)
    assert in_parts["auc"].tolist() == whole["auc"].tolist()


def test_many_classes_are_sorted_only_if_that_decides() -> None:
    y = torch.arange(30) % 3
    predicted = torch.softmax(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), 1)
    answers = Answers(torch.zeros(30), predicted, predicted.argmax(1))
    assert "auc" not in draw_again(Yardstick(METRICS["accuracy"], 3), answers, y)
    assert "auc" in draw_again(Yardstick(METRICS["auc"], 3), answers, y)


def test_the_interval_holds_the_middle_of_the_draws() -> None:
    low, high = interval(np.arange(1001) / 1000) or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.025, 0.975))


def test_few_draws_with_a_figure_give_no_interval() -> None:
    values = np.arange(10.0)
    values[:3] = np.nan
    assert interval(values) is None
    assert interval(np.arange(10.0)) is not None


def test_of_many_rows_the_interval_lies_around_the_figure_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Draws of few rows have a higher average precision, since a rare class repeats itself."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy((rng.random(3000) < 0.02).astype(np.int64))
    score = torch.from_numpy(rng.random(3000)) * 0.5 + 0.2 * y
    predicted = torch.stack([1 - score, score], 1)
    answers = Answers(torch.zeros(3000), predicted, predicted.argmax(1))
    yardstick = Yardstick(METRICS["average_precision"], 2)
    (figure,) = yardstick.measure(answers, y)["average_precision"]
    monkeypatch.setattr(bootstrap, "MOST", 200)
    draws = draw_again(yardstick, answers, y)["average_precision"]
    assert np.nanmean(draws) == pytest.approx(figure, abs=1e-9)


def test_very_many_classes_are_drawn_from_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = Yardstick.measure

    def measured(self: Yardstick, answers: Answers, *rest: Any, **options: Any) -> Any:
        sizes.append(answers.predicted.numel())
        return whole(self, answers, *rest, **options)

    monkeypatch.setattr(Yardstick, "measure", measured)
    y = torch.arange(600) % 300
    predicted = torch.rand(600, 300, generator=torch.Generator().manual_seed(0)).softmax(1)
    answers = Answers(torch.zeros(600), predicted, predicted.argmax(1))
    monkeypatch.setattr(bootstrap, "NUMBERS", 90_000)
    draw_again(Yardstick(METRICS["accuracy"], 300), answers, y)
    assert max(sizes[:-1]) <= 90_000  # the last one measures all rows once
