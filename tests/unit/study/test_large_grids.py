"""Grids of many points: what each one costs does not grow with their number."""

from __future__ import annotations

import pytest
from playground import FAST

from tacit.core.events import ignore
from tacit.study import study_data
from tacit.study.run_names import row_names
from tacit.study.study import Study
from tacit.study.study_data import load_data
from tacit.study.texts import short_values

MANY = 300


class Counted:
    """A value that counts how often it is written down, or a text that is compared."""

    used = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        Counted.used += 1
        return str(self.number)


class CountedLabel(dict):  # type: ignore[type-arg]
    """A label that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedLabel.compared += 1
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def test_a_method_is_written_down_a_few_times_whatever_the_size_of_the_grid() -> None:
    Counted.used = 0
    specs = [{"name": "fedprox", "mu": Counted(number)} for number in range(MANY)]
    assert short_values(specs)[7] == "fedprox(mu=7)"
    assert Counted.used <= 3 * MANY


def test_rows_are_named_without_comparing_labels_with_each_other() -> None:
    CountedLabel.compared = 0
    labels = []
    for number in range(MANY):
        algorithm = "centralised" if number % 2 else "fedavg"
        label = {"split": "iid", "algorithm": algorithm, "rounds": number}
        labels.append(CountedLabel(label))
    assert row_names(labels)[:2] == ["rounds=0", "centralised, rounds=1"]
    assert CountedLabel.compared == 0


def test_a_model_is_tried_once_on_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make_module = study_data.make_module
    monkeypatch.setattr(
        study_data, "make_module", lambda *given: made.append(1) or make_module(*given)
    )
    models = ["linear", {"name": "mlp", "hidden": [8]}]
    settings = {"model": models, "seed": [0, 1, 2], "rounds": [1, 2, 3]}
    load_data(Study(**{**FAST, **settings}), None, ignore)
    assert len(made) == 2
