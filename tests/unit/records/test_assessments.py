"""What was found out about last models, and about data: as files, whatever happens meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from patients import a_study_of, served_unequally
from playground import StopAfter, assert_same

import tacit
from tacit.core.errors import DataError
from tacit.records.assessments import read_assessment, write_assessment
from tacit.records.data_summary import DatasetSummary, DataSummary
from tacit.study.study import Study

ONE_TEST: dict[str, Any] = {
    "rows": 4,
    "metrics": {"auc": 0.75, "f1": None},
    "groups": {"sex": [{"group": "f", "rows": 3, "positives": 1, "auc": None}]},
    "importance": [{"column": "age", "drop": 0.1, "deviation": None}],
    "calibration": {"rows": [0, 4], "predicted": [None, 0.9], "observed": [None, 1], "error": 0.1},
    "confusion": [[1, 2], [0, 1]],
}
SOUND: dict[str, Any] = {
    **ONE_TEST,
    "bootstrap": {"metric": "auc", "draws": [0.5, None], "intervals": {"auc": [0.4, 0.8]}},
    "clients": [{**ONE_TEST, "client": 1}],
}
ROUNDS = 8  # of all four runs
SUMMARY = DataSummary(
    "auc",
    "since ill is rare",
    (
        DatasetSummary("a", 30, 10, ("well", "ill"), (28, 2), (9, 1), "ill", "well", {"auc": 0.5}),
        DatasetSummary("b", 30, 10, (), (), (), None, "3.2", {"r2": -0.1, "mae": None}),
    ),
    {"000": 0, "001": 1},
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two batches of two runs each, with groups and clients' own tests."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    settings = a_study_of(served_unequally(300), path, "outcome", fairness=["sex"])
    settings |= {"algorithm": ["fedavg", "fedsgd"], "split": ["iid", "quantity_skew"]}
    return Study.of({**settings, "local_test": 0.3, "seed": 3})


@pytest.fixture(scope="module")
def whole(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study as it is when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    tacit.run(study, folder)
    return folder


def found_in(folder: Path) -> dict[str, bytes]:
    """The bytes of the data's summary and of all assessments."""
    files = [folder / "data.json", *sorted((folder / "assessments").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_every_run_leaves_an_assessment_without_rows(whole: Path) -> None:
    names = [f"assessments/{run}.json" for run in tacit.Results(whole).labels]
    assert list(found_in(whole)) == ["data.json", *names]
    for name in names:
        saved = json.loads((whole / name).read_text())
        assert saved.keys() >= SOUND.keys()
        assert (saved["rows"], len(saved["clients"])) == (60, 3)


@pytest.mark.parametrize("rounds", [1, 3, 5, ROUNDS])
def test_a_stopped_study_finds_the_same_bytes_when_it_is_resumed(
    study: Study, whole: Path, tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        tacit.run(study, folder, on_event=StopAfter(rounds))
    tacit.resume(folder)
    assert found_in(folder) == found_in(whole)
    assert_same(folder, whole)


def test_several_processes_find_the_same_bytes_as_one(
    study: Study, whole: Path, tmp_path: Path
) -> None:
    tacit.run(study, tmp_path / "several", workers=2)
    assert found_in(tmp_path / "several") == found_in(whole)


def test_a_lost_summary_of_the_data_comes_back_when_the_study_is_resumed(
    study: Study, whole: Path, tmp_path: Path
) -> None:
    tacit.run(study, tmp_path / "lost")
    for damage in (None, "{"):
        path = tmp_path / "lost" / "data.json"
        path.unlink()
        if damage is not None:
            path.write_text(damage)
        tacit.resume(tmp_path / "lost")
        assert found_in(tmp_path / "lost") == found_in(whole)


def test_an_assessment_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_assessment(tmp_path, "000-iid", SOUND)
    assert read_assessment(tmp_path, "000-iid", 2) == SOUND
    assert read_assessment(tmp_path, "001-iid", 2) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_assessment(tmp_path, "000-iid", {**SOUND, "rows": float("nan")})
    assert read_assessment(tmp_path, "000-iid", 2) == SOUND


@pytest.mark.parametrize(
    "change",
    [
        {"rows": None},
        {"rows": "many"},
        {"rows": -1},
        {"metrics": []},
        {"metrics": {"auc": "high"}},
        {"metrics": {"auc": 1e400}},
        {"metrics": {"auc": True}},
        {"groups": []},
        {"groups": {"sex": "f"}},
        {"groups": {"sex": [{"group": "f"}]}},
        {"groups": {"sex": [{"group": 3, "rows": 3}]}},
        {"groups": {"sex": [{"group": "f", "rows": 3, "auc": "<b>"}]}},
        {"importance": [1]},
        {"importance": [{"column": "age", "drop": 0.1}]},
        {"importance": [{"column": ["age"], "drop": 0.1, "deviation": 0}]},
        {"calibration": "none"},
        {"calibration": {"rows": [1], "predicted": [0.5], "observed": [], "error": 0}},
        {"confusion": [[1, 2]]},
        {"confusion": [["a"]]},
        {"bootstrap": None},
        {"bootstrap": {"metric": "auc", "draws": "0.5", "intervals": {}}},
        {"bootstrap": {"metric": "auc", "draws": [], "intervals": {"auc": [0.4]}}},
        {"clients": {}},
        {"clients": [1]},
        {"clients": [ONE_TEST]},
        {"clients": [{**ONE_TEST, "client": 2}]},
        {"clients": [{**ONE_TEST, "client": -1}]},
        {"clients": [{**ONE_TEST, "client": 0}] * 2},
        {"thresholds": [{"threshold": 0.5}]},
    ],
)
def test_an_assessment_with_a_part_that_makes_no_sense_is_damaged(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "assessments" / "a.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**SOUND, **change}).replace("Infinity", "1e400"))
    with pytest.raises(DataError, match=r"assessments/a\.json is damaged; delete it") as caught:
        read_assessment(tmp_path, "a", 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["rows", "metrics", "groups", "importance", "clients"])
def test_an_assessment_without_one_of_its_parts_is_damaged(tmp_path: Path, missing: str) -> None:
    without = {name: part for name, part in SOUND.items() if name != missing}
    write_assessment(tmp_path, "a", without)
    with pytest.raises(DataError, match="is damaged"):
        read_assessment(tmp_path, "a", 2)


def test_the_summary_of_the_data_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert DataSummary.read(tmp_path) is None
    SUMMARY.write(tmp_path)
    assert DataSummary.read(tmp_path) == SUMMARY
    assert SUMMARY.of("001") == SUMMARY.datasets[1]
    assert SUMMARY.of("002") is None


@pytest.mark.parametrize(
    "change",
    [
        {"datasets": None},
        {"datasets": [{"name": "a"}]},
        {"datasets": [3]},
        {"dataset_of": {"000": 2}},
        {"dataset_of": [0]},
        {"datasets": {}},
        {"metric": 5},
    ],
)
def test_a_damaged_summary_of_the_data_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    SUMMARY.write(tmp_path)
    path = tmp_path / "data.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=r"data\.json is damaged; resume the study to repair it"):
        DataSummary.read(tmp_path)
