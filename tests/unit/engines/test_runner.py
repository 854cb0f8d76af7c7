from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from playground import FAST

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import Event, RoundFinished, StudyStarted
from tacit.engines.history import read_lines
from tacit.engines.results import Results
from tacit.engines.runner import new_folder
from tacit.engines.study import Study

STUDY = Study(
    "small",
    **{**FAST, "rounds": 6, "model": "mlp"},
    algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}],
    split=["iid", "quantity_skew"],
)


class StopAfter:
    """Raises in the middle of a study, as Ctrl-C does."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def everything(folder: Path) -> dict[str, object]:
    models = {path.name: torch.load(path, weights_only=True) for path in sorted((folder / "models").glob("*.pt"))}
    return {"history": (folder / "history.jsonl").read_bytes(), "models": models}


def assert_same(one: Path, other: Path) -> None:
    mine, theirs = everything(one), everything(other)
    assert mine["history"] == theirs["history"]
    assert mine["models"].keys() == theirs["models"].keys()  # type: ignore[attr-defined]
    torch.testing.assert_close(mine["models"], theirs["models"], rtol=0, atol=0)


def test_a_study_leaves_its_files_and_tables(tmp_path: Path) -> None:
    results = tacit.run(STUDY, tmp_path / "a")
    found = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"study.yaml", "history.jsonl", "timings.jsonl", "checkpoints", "models", "report.html"} <= found
    assert {"summary.csv", "rounds.csv", "clients.csv"} <= found
    assert len(results.frame()) == 6 * 6
    assert len(results.client_frame()) == 6 * 6 * 3
    assert results.table().shape == (3, 2)
    assert (results.summary()["status"] == "finished").all()
    accuracy = results.summary().set_index("run")["accuracy"]
    assert accuracy[results.best()] == accuracy.max()
    data = Study(**FAST).runs()[0].dataset.load()
    hit = (results.model(results.best())(data.test_x).argmax(1) == data.test_y).float().mean().item()
    assert hit == pytest.approx(accuracy.max(), abs=1e-6)


@pytest.mark.parametrize("rounds", [1, 7, 13, 17, 30])
def test_a_stopped_study_resumes_to_the_same_bits(tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.engines.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "stopped", on_event=StopAfter(rounds))
    started: list[StudyStarted] = []
    tacit.resume(tmp_path / "stopped", on_event=lambda e: started.append(e) if isinstance(e, StudyStarted) else None)
    tacit.run(STUDY, tmp_path / "whole")
    assert_same(tmp_path / "stopped", tmp_path / "whole")
    assert rounds < 7 or started[0].done > 0


def test_a_torn_last_line_is_cut_off_on_resume(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "stopped", on_event=StopAfter(20))
    with open(tmp_path / "stopped" / "history.jsonl", "a") as file:
        file.write('{"run": "00')
    assert read_lines(tmp_path / "stopped" / "history.jsonl")
    tacit.resume(tmp_path / "stopped")
    tacit.run(STUDY, tmp_path / "whole")
    assert_same(tmp_path / "stopped", tmp_path / "whole")


def test_resuming_a_finished_study_changes_nothing(tmp_path: Path) -> None:
    tacit.run(STUDY, tmp_path / "a")
    before = everything(tmp_path / "a")["history"]
    tacit.resume(tmp_path / "a")
    assert everything(tmp_path / "a")["history"] == before


def test_ten_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    """One study is killed with SIGKILL again and again, resumed each time, and ends as if nothing had happened."""
    study = Study(
        "killed",
        dataset="digits",
        model="mlp",
        clients=3,
        rounds=40,
        algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}],
        split=["iid", "label_dirichlet"],
        optimiser={"name": "adam"},
    )
    (tmp_path / "study.yaml").write_text(study.to_yaml())
    folder = tmp_path / "killed"
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    kills = 0
    while kills < 10:
        resumed = (folder / "study.yaml").exists()
        command = ["--resume", str(folder)] if resumed else [str(tmp_path / "study.yaml"), "--out", str(folder)]
        process = subprocess.Popen([sys.executable, "-m", "tacit", "run", "--quiet", *command], stderr=subprocess.PIPE)
        wait_for_work(folder, process, moments.uniform(0, 1.5))
        assert process.poll() is None, (
            f"it ended before kill {kills} of seed {seed}: {process.stderr and process.stderr.read()}"
        )
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    tacit.resume(folder)
    tacit.run(study, tmp_path / "whole")
    assert_same(folder, tmp_path / "whole")


def wait_for_work(folder: Path, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until this process writes to the history, and some seconds more."""
    path, start = folder / "timings.jsonl", time.time()
    before = path.stat().st_mtime_ns if path.exists() else 0
    while (
        process.poll() is None
        and time.time() - start < 60
        and (path.stat().st_mtime_ns if path.exists() else 0) == before
    ):
        time.sleep(0.01)
    end = time.time() + seconds
    while process.poll() is None and time.time() < end:
        time.sleep(0.01)


def test_a_folder_in_use_is_not_run_twice(tmp_path: Path) -> None:
    def meddle(event: Event) -> None:
        if isinstance(event, RoundFinished):
            with pytest.raises(StudyError, match="being run by another process"):
                tacit.resume(tmp_path / "a")

    tacit.run(Study(**{**FAST, "rounds": 1}), tmp_path / "a", on_event=meddle)


def test_a_folder_with_a_study_is_not_overwritten(tmp_path: Path) -> None:
    tacit.run(Study(**FAST), tmp_path / "a")
    with pytest.raises(StudyError, match="holds a study already; resume it"):
        tacit.run(Study(**FAST), tmp_path / "a")


def test_folders_that_hold_no_study_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no study to resume"):
        tacit.resume(tmp_path)
    with pytest.raises(StudyError, match="holds no study"):
        Results(tmp_path)


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    one = new_folder(STUDY, tmp_path)
    one.mkdir()
    assert new_folder(STUDY, tmp_path) != one


def test_a_study_that_cannot_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError):
        tacit.run(Study(algorithm="fedavgg"))
    assert os.listdir(tmp_path) == []


def test_the_history_is_json_even_when_a_run_diverges(tmp_path: Path) -> None:
    results = tacit.run(
        Study(**{**FAST, "model": "mlp", "optimiser": {"name": "sgd", "lr": 1e30}, "rounds": 4}), tmp_path / "a"
    )
    lines = (tmp_path / "a" / "history.jsonl").read_text().splitlines()
    parsed = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert parsed[-1]["status"] == "diverged"
    assert "diverged" in results.report.read_text()
