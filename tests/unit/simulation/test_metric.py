"""The metric that decides: when runs stop, which is best, and what a study may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.core.errors import StudyError
from tacit.simulation.state import RunProgress
from tacit.study.run_names import label_runs
from tacit.study.study import Study
from tacit.training.metrics import METRICS

STUDY: dict[str, Any] = {"dataset": "iris", "model": "linear", "clients": 2, "rounds": 8}


def test_patience_goes_by_the_metric(tmp_path: Path) -> None:
    """The Brier score falls in every round, and the accuracy of iris soon stands still."""
    study = {**STUDY, "patience": 2, "rounds": 30}
    by_accuracy = tacit.run(study, tmp_path / "a")
    by_brier = tacit.run({**study, "metric": "brier"}, tmp_path / "b")
    assert by_accuracy.summary()["status"].tolist() == ["patience"]
    assert by_brier.summary()["round"][0] > by_accuracy.summary()["round"][0]
    last = by_brier.frame()["brier"]
    assert by_brier.summary()["best_brier"][0] == last.min()


def test_a_target_of_an_error_is_reached_from_above(tmp_path: Path) -> None:
    results = tacit.run(
        {**STUDY, "dataset": "diabetes", "metric": "rmse", "target_accuracy": 70.0}, tmp_path / "a"
    )
    errors = results.frame()["rmse"]
    assert results.summary()["status"].tolist() == ["target"]
    assert errors.iloc[-1] <= 70 < errors.iloc[-2]


def test_the_best_run_has_the_smallest_error(tmp_path: Path) -> None:
    study = {**STUDY, "dataset": "diabetes", "algorithm": ["fedsgd", "fedavg"], "metric": "mae"}
    results = tacit.run(study, tmp_path / "a")
    summary = results.summary().set_index("run")["mae"]
    assert results.best() == summary.idxmin()
    assert results.score == "mae"


def test_clients_are_compared_by_the_metric_too(tmp_path: Path) -> None:
    results = tacit.run({**STUDY, "metric": "brier", "split": "label_dirichlet"}, tmp_path / "a")
    record = results.records[-1]
    tests = [client["test_brier"] for client in record["clients"]]
    assert record["worst"] == max(tests)
    assert record["local_brier"] == pytest.approx(np.mean(tests))


def test_a_run_whose_metric_is_never_known_ends_with_its_last_round() -> None:
    """A test set may have no positives, and then no area under a curve."""
    (run,) = Study(**STUDY).runs()
    progress = RunProgress("some", run)
    for round in range(1, 9):
        assert progress.status == "running"
        progress.round = round
        progress.update_status(None, METRICS["auc"])
    assert progress.status == "finished"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"metric": "acuracy"}, "did you mean accuracy"),
        ({"metric": "rmse"}, "rmse does not suit iris"),
        ({"metric": "sensitivity"}, "sensitivity does not suit iris.*3 classes; use one of auc"),
        ({"metric": ["auc", "f1"]}, "a study is decided by one, got auc and f1"),
        ({"target_accuracy": 1.5}, "target_accuracy: expected a share"),
        ({"metric": "auc", "target_accuracy": 70}, "target_accuracy: expected a share"),
        ({"importance": -1}, "importance: expected 0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(
    settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=complaint):
        tacit.run({**STUDY, **settings}, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_metric_is_no_part_of_a_runs_name() -> None:
    study = Study(**{**STUDY, "metric": "f1", "algorithm": ["fedavg", "fedsgd"]})
    assert all("metric" not in label for label in label_runs(study.runs()))


def test_of_several_data_sets_one_with_a_rare_class_decides(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = []
    for share in (0.5, 0.05):
        frame = pd.DataFrame({"a": rng.normal(size=300)})
        frame["y"] = np.where(rng.random(300) < share, "yes", "no")
        frames.append({"name": "table", "path": frame, "target": "y"})
    both = tacit.run({**STUDY, "dataset": frames, "rounds": 1}, tmp_path / "a")
    assert both.score == "auc"
    even = tacit.run({**STUDY, "dataset": frames[0], "rounds": 1}, tmp_path / "b")
    assert even.score == "accuracy"
    assert both.differences().empty  # models of different rows are not compared
