from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from own_code import Memorious
from playground import FAST, StopAfter, assert_same, everything

import tacit
from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.events import Event, RoundFinished, StudyStarted
from tacit.records.history import read_lines
from tacit.report.results import Results
from tacit.study import settings, study_data
from tacit.study.study import Study

STUDY = Study(
    "small",
    **{**FAST, "rounds": 6, "model": "mlp"},
    algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}],
    split=["iid", "quantity_skew"],
)
KILLS = int(os.environ.get("TACIT_KILLS", "3"))  # of the study that is killed; a soak from 10 on


def test_a_study_leaves_its_files_and_tables(tmp_path: Path) -> None:
    results = tacit.run(STUDY, tmp_path / "a")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"study.yaml", "history.jsonl", "timings.jsonl", "report.html"} <= names
    assert {"checkpoints", "models"} <= names
    assert {"summary.csv", "rounds.csv", "clients.csv"} <= names
    assert len(results.frame()) == 6 * 6
    assert len(results.client_frame()) == 6 * 6 * 3
    assert results.table().shape == (3, 2)
    assert (results.summary()["status"] == "finished").all()
    accuracy = results.summary().set_index("run")["accuracy"]
    assert accuracy[results.best()] == accuracy.max()
    data = Study(**FAST).runs()[0].dataset.load()
    predicted = results.model(results.best())(data.test_x).argmax(1)
    hit = (predicted == data.test_y).float().mean().item()
    assert hit == pytest.approx(accuracy.max(), abs=1e-6)


@pytest.mark.parametrize("rounds", [1, 7, 13, 17, 30])
def test_a_stopped_study_resumes_to_the_same_bits(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "stopped", on_event=StopAfter(rounds))
    started: list[StudyStarted] = []
    tacit.resume(
        tmp_path / "stopped",
        on_event=lambda e: started.append(e) if isinstance(e, StudyStarted) else None,
    )
    tacit.run(STUDY, tmp_path / "whole")
    assert_same(tmp_path / "stopped", tmp_path / "whole")
    assert rounds < 7 or started[0].done > 0


HARD = {
    "buffers, dropout and a fraction": {
        "dataset": {"name": "function", "path": "own_code:make_data"},
        "model": {"name": "module", "path": "own_code:Net"},
        "batch_size": 20,
        "selection": {"name": "fraction", "c": 0.5},
        "clients": 4,
    },
    "memory": {
        "algorithm": {"name": "own_code:Memorious"},
        "selection": {"name": "fraction", "c": 0.7},
    },
    "patience": {"patience": 3, "optimiser": {"name": "sgd", "lr": 0.9}, "rounds": 40},
    "divergence": {
        "model": "mlp",
        "optimiser": [{"name": "sgd", "lr": 0.1}, {"name": "momentum", "lr": 1e4}],
    },
}


@pytest.mark.parametrize("kind", list(HARD))
def test_every_kind_of_state_survives_a_stop(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    study = Study("hard", **{**FAST, "rounds": 8, **HARD[kind]})
    tacit.run(study, tmp_path / "whole")
    rounds = len(read_lines(tmp_path / "whole" / "history.jsonl"))
    for after in sorted({3, rounds // 2, rounds - 2}):
        folder = tmp_path / f"stopped{after}"
        with pytest.raises(KeyboardInterrupt):
            tacit.run(study, folder, on_event=StopAfter(after))
        tacit.resume(folder)
        assert_same(folder, tmp_path / "whole")


def test_a_study_or_data_that_changed_are_not_mixed_with_what_was_done(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=60), "y": np.arange(60) % 2})
    table.to_csv(tmp_path / "t.csv", index=False)
    study = Study(
        **{**FAST, "dataset": {"name": "table", "path": str(tmp_path / "t.csv"), "target": "y"}}
    )
    tacit.run(study, tmp_path / "a")
    text = (tmp_path / "a" / "study.yaml").read_text()
    (tmp_path / "a" / "study.yaml").write_text(text.replace("rounds: 2", "rounds: 3"))
    with pytest.raises(StudyError, match=r"started with another study.yaml or other data"):
        tacit.resume(tmp_path / "a")
    (tmp_path / "a" / "study.yaml").write_text(text)
    tacit.resume(tmp_path / "a")
    table.assign(y=1 - table["y"]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(StudyError, match=r"started with another study.yaml or other data"):
        tacit.resume(tmp_path / "a")


@pytest.mark.parametrize(
    "damage", [b"", b"nothing at all", "list", "other"], ids=["empty", "text", "list", "other"]
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: bytes | str) -> None:
    tacit.run(Study(**FAST), tmp_path / "a")
    path = tmp_path / "a" / "checkpoints" / "block-0.pt"
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        torch.save([1] if damage == "list" else {"weight": torch.zeros(1)}, path)
    text = r"block-0\.pt cannot be read|started with another study"
    with pytest.raises(TacitError, match=text) as caught:
        tacit.resume(tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_a_history_that_lost_lines_or_was_garbled_is_named(tmp_path: Path) -> None:
    tacit.run(Study(**FAST), tmp_path / "a")
    path = tmp_path / "a" / "history.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(DataError, match="has lost lines since the checkpoint"):
        tacit.resume(tmp_path / "a")
    assert path.read_bytes() == whole[:-30]
    path.write_bytes(whole.replace(b'"round"', b'"rou', 1))
    with pytest.raises(DataError, match=r"history\.jsonl is damaged"):
        Results(tmp_path / "a").frame()
    path.write_bytes(whole.replace(b"000-", b"009-"))
    with pytest.raises(DataError, match="names a run that the study does not have"):
        Results(tmp_path / "a").frame()


def test_diverged_runs_stay_in_the_tables_without_a_number(tmp_path: Path) -> None:
    rates = [{"name": "momentum", "lr": lr} for lr in (0.1, 1e4)]
    settings = {**FAST, "model": "mlp", "optimiser": rates, "rounds": 6, "seed": [0, 1]}
    results = tacit.run(Study(**settings), tmp_path / "a")
    assert results.table().isna()["iid"].tolist() == [False, True]
    assert "lr=0.1" in results.table().index[0]
    assert results.summary()["accuracy"].isna().tolist() == [False, False, True, True]
    assert results.best().startswith(("000", "001"))
    assert results.frame().query("seed == 1")["accuracy"].notna().any()
    lost = tacit.run(Study(**{**settings, "optimiser": rates[1:]}), tmp_path / "b")
    assert lost.table().isna().all(axis=None)
    with pytest.raises(StudyError, match="all of them diverged"):
        lost.best()
    with pytest.raises(StudyError, match=r"did you mean accuracy\?"):
        results.table("acuracy")


def test_a_method_of_ones_own_is_found_again_by_its_path(tmp_path: Path) -> None:
    results = tacit.run(Study(**{**FAST, "algorithm": Memorious()}), tmp_path / "a")
    assert results.runs[results.best()].algorithm == Memorious()
    assert "own_code:Memorious" in (tmp_path / "a" / "study.yaml").read_text()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    results = tacit.run(FAST, tmp_path / "a")
    run = results.best()
    (tmp_path / "a" / "models" / f"{run}.pt").unlink()
    with pytest.raises(StudyError, match="has not finished"):
        results.model(run)
    with pytest.raises(StudyError, match="no run is called 'x'"):
        results.model("x")


def test_whoever_stops_a_study_is_told_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        tacit.run(STUDY, tmp_path / "a", on_event=StopAfter(2))
    assert caught.value.__notes__ == [f"continue with: tacit.resume({str(tmp_path / 'a')!r})"]


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


SLOW_MODEL = """
import os, time
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        time.sleep(float(os.environ.get("PACE", 0)))
        return super().forward(x)
"""


def study_to_kill() -> Study:
    """So long that the last kill comes before its end; for a soak, a larger one of six runs."""
    if KILLS >= 10:
        return Study(
            "killed",
            dataset="digits",
            model="mlp",
            clients=3,
            rounds=40 * KILLS,
            algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}],
            split=["iid", "label_dirichlet"],
            optimiser={"name": "adam"},
        )
    # A round takes 50 ms or more, on any machine.
    small = {**FAST, "model": "slow:Net", "rounds": 16 * (KILLS + 1), "batch_size": 8}
    return Study("killed", **small, algorithm=["fedavg", "scaffold"])


def test_kills_at_random_moments_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study is killed with SIGKILL again and again, and resumed to the same results."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW_MODEL)
    study = study_to_kill()
    (tmp_path / "study.yaml").write_text(study.to_yaml())
    folder = tmp_path / "killed"
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    for kill in range(KILLS):
        command = ["study.yaml", "--out", str(folder)]
        if (folder / "study.yaml").exists():
            command = ["--resume", str(folder)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tacit", "run", "--quiet", *command],
            cwd=tmp_path,
            env={**os.environ, "PACE": "0.003"},
            stderr=subprocess.PIPE,
        )
        wait_for_work(folder, process)
        time.sleep(moments.uniform(0, 1.5))
        is_over = process.poll() is not None
        assert not is_over, f"kill {kill} of seed {seed}: {process.communicate()[1]!r}"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    tacit.resume(folder)
    tacit.run(study, tmp_path / "whole")
    assert_same(folder, tmp_path / "whole")


def wait_for_work(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until this process writes to the folder."""
    path = folder / "timings.jsonl"

    def version() -> int:
        return path.stat().st_mtime_ns if path.exists() else 0

    before = version()
    while process.poll() is None and version() == before:
        time.sleep(0.01)


def test_a_folder_in_use_is_not_run_twice(tmp_path: Path) -> None:
    def meddle(event: Event) -> None:
        if isinstance(event, RoundFinished):
            with pytest.raises(StudyError, match="being run by another process"):
                tacit.resume(tmp_path / "a")

    tacit.run(Study(**{**FAST, "rounds": 1}), tmp_path / "a", on_event=meddle)


def test_a_folder_with_a_study_is_not_overwritten(tmp_path: Path) -> None:
    tacit.run(Study(**FAST), tmp_path / "a")
    with pytest.raises(StudyError, match="is not empty; resume the study in it"):
        tacit.run(Study(**FAST), tmp_path / "a")


def test_folders_that_hold_no_study_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no study to resume"):
        tacit.resume(tmp_path)
    with pytest.raises(StudyError, match="holds no study"):
        Results(tmp_path)


def test_a_study_that_cannot_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError):
        tacit.run(Study(algorithm="fedavgg"))
    assert os.listdir(tmp_path) == []


def test_the_history_is_json_even_when_a_run_diverges(tmp_path: Path) -> None:
    results = tacit.run(
        Study(**{**FAST, "model": "mlp", "optimiser": {"name": "sgd", "lr": 1e30}, "rounds": 4}),
        tmp_path / "a",
    )
    lines = (tmp_path / "a" / "history.jsonl").read_text().splitlines()
    parsed = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert parsed[-1]["status"] == "diverged"
    assert "diverged" in results.report.read_text()


def test_the_environment_is_noted_once_however_often_it_is_the_same(tmp_path: Path) -> None:
    tacit.run({"dataset": "iris", "model": "linear", "rounds": 1}, tmp_path / "a")
    results = tacit.resume(tmp_path / "a")
    assert len(results.environment) == 1


def test_the_grid_is_expanded_once_and_the_data_divided_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded, divided = [], []
    make_points, divide = settings.make_points, study_data.divide
    monkeypatch.setattr(
        settings, "make_points", lambda *given: expanded.append(1) or make_points(*given)
    )
    monkeypatch.setattr(
        study_data, "divide", lambda *given, **named: divided.append(1) or divide(*given, **named)
    )
    study = Study(
        "once", **{**FAST, "algorithm": ["fedavg", "local"], "seed": [0, 1], "centralised": True}
    )
    assert len(expanded) == 1
    results = tacit.run(study, tmp_path / "a", workers=1)
    assert len(divided) == 4  # for each seed one among clients and one for the reference
    assert len(results.study.runs()) == len(study.runs()) == 6
    assert len(expanded) == 2  # once more from the folder's file, for the report


def test_a_fusions_clients_use_the_division_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = []
    divide = study_data.divide
    monkeypatch.setattr(
        study_data, "divide", lambda *given, **named: divided.append(1) or divide(*given, **named)
    )
    chosen = {
        "fusion": ["pfnm", "average"],
        "initial": "different",
        "model": {"name": "mlp", "hidden": [4]},
    }
    tacit.run({**FAST, **chosen}, tmp_path / "a", workers=1)
    assert len(divided) == 1
