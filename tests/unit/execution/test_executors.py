"""A study gives the same results in this process and in worker processes.

So does one that is interrupted, killed or resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import assert_same_results
from hypothesis import given
from hypothesis import strategies as st
from playground import FAST
from torch import nn

import tacit
from tacit.core.errors import MissingDependencyError, StudyError
from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted, Warned
from tacit.records.checkpoint import Checkpoints, block_state
from tacit.records.history import read_lines
from tacit.records.messages import BlockSaved, RoundPlayed
from tacit.records.recorder import RETRIES, Recorder
from tacit.study.study import Study

STUDY = Study(
    "spread",
    dataset="digits",
    model="mlp",
    clients=3,
    rounds=8,
    algorithm=["fedavg", "scaffold", "fedplus"],
    split=["iid", "label_dirichlet"],
    optimiser={"name": "sgd", "lr": 0.1},
)


class Listener:
    """Remembers events, and does something at one of the rounds."""

    def __init__(self, at: int | None = None, act: Any = None) -> None:
        self.events: list[Event] = []
        self.at, self.act = at, act

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RoundFinished) and len(self.of(RoundFinished)) == self.at:
            self.act()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def interrupt() -> None:
    raise KeyboardInterrupt


def kill_a_worker() -> None:
    os.kill(next(iter(multiprocessing.active_children())).pid or 0, signal.SIGKILL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study as one process plays it."""
    folder = tmp_path_factory.mktemp("here") / "a"
    tacit.run(STUDY, folder, workers=1, on_event=Listener())
    return folder


def test_the_history_stands_run_by_run(whole: Path) -> None:
    records = read_lines(whole / "history.jsonl")
    keys = [(record["run"], record["round"]) for record in records]
    assert keys == sorted(keys)
    assert [key["run"] for key in read_lines(whole / "timings.jsonl")] == [run for run, _ in keys]


def test_workers_give_the_same_results_even_when_one_is_killed(whole: Path, tmp_path: Path) -> None:
    heard = Listener(10, kill_a_worker)
    tacit.run(STUDY, tmp_path / "a", workers=2, on_event=heard)
    assert_same_results(tmp_path / "a", whole)
    assert [event for event in heard.of(Warned) if "killed by signal 9" in event.text]
    rounds = [(event.run, event.round) for event in heard.of(RoundFinished)]
    assert len(rounds) == len(set(rounds)) == 6 * 8  # what was played twice is told once
    assert len(heard.of(RunFinished)) == 6
    assert not multiprocessing.active_children()


def test_a_study_stopped_among_workers_goes_on_anywhere(whole: Path, tmp_path: Path) -> None:
    heard = Listener(30, interrupt)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "a", workers=2, on_event=heard)
    assert not multiprocessing.active_children()
    ended = {event.run for event in heard.of(RunFinished)}
    again = Listener()
    tacit.resume(tmp_path / "a", workers=1, on_event=again)
    assert_same_results(tmp_path / "a", whole)
    played_again = {event.run for event in again.of(RoundFinished)}
    assert ended
    assert not ended & played_again
    assert again.of(StudyStarted)[0].done >= 8 * len(ended)
    rounds = len(again.of(RoundFinished))
    assert rounds + again.of(StudyStarted)[0].done == 6 * 8
    assert rounds < 6 * 8 - 20  # and what workers had done when they were stopped was saved


def test_a_study_stopped_here_goes_on_among_workers(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "a", workers=1, on_event=Listener(19, interrupt))
    tacit.resume(tmp_path / "a", workers=2, on_event=Listener())
    assert_same_results(tmp_path / "a", whole)


def test_an_error_in_a_worker_is_the_same_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(
        "from dataclasses import dataclass\n"
        "from tacit.federated.algorithm import Algorithm\n"
        "@dataclass(frozen=True)\n"
        "class Late(Algorithm):\n"
        "    def aggregate(self, server, cohort):\n"
        "        raise ValueError(f'{cohort.population} clients are too few')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    study = Study(**{**FAST, "algorithm": {"name": "failing:Late"}, "seed": [0, 1]})
    said = []
    for workers in (1, 2):
        with pytest.raises(StudyError) as caught:
            tacit.run(study, tmp_path / f"run{workers}", workers=workers)
        said.append(str(caught.value))
        assert not (tmp_path / f"run{workers}").exists()
    assert said[0] == said[1]
    error = "ValueError: 3 clients are too few"
    assert said[0] == f"failing:Late.aggregate raised {error} (failing.py:6)"
    assert not multiprocessing.active_children()


def test_what_cannot_travel_is_run_here_and_says_so(tmp_path: Path) -> None:
    class Private(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)

    heard = Listener()
    study = Study(**{**FAST, "model": Private, "seed": [0, 1]})
    results = tacit.run(study, tmp_path / "a", workers=2, on_event=heard)
    assert (results.summary()["status"] == "finished").all()
    assert ["known in this Python only" in event.text for event in heard.of(Warned)] == [True]
    assert results.environment[0]["place"] == "this process"


def test_threads_are_one_unless_asked_for_and_come_back(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), set[int]()
    torch.set_num_threads(2)
    try:
        for threads in (None, 2):
            heard = Listener(1, lambda: seen.add(torch.get_num_threads()))
            tacit.run(FAST, tmp_path / str(threads), threads=threads, on_event=heard)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert tacit.Results(tmp_path / "None").environment[0]["threads"] == 1
    assert tacit.Results(tmp_path / "2").environment[0]["threads"] == 2
    assert seen == {1, 2}


def test_a_block_that_loses_its_worker_too_often_is_named(tmp_path: Path) -> None:
    heard = Listener()
    recorder = Recorder(tmp_path, {"000-x": 2}, Checkpoints(tmp_path, "key"), heard)
    for _ in range(RETRIES):
        recorder.retry(0, ["000-x"], "a worker process was killed")
    with pytest.raises(
        StudyError, match=r"000-x lost its worker 4 times, .* because a worker process was killed"
    ):
        recorder.retry(0, ["000-x"], "a worker process was killed")
    recorder.close(complete=False)
    assert len(heard.of(Warned)) == RETRIES


def test_nothing_is_recorded_that_builds_on_a_lost_round(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {"000-x": 3}, Checkpoints(tmp_path, "key"), Listener())

    def played(round: int) -> RoundPlayed:
        return RoundPlayed({"run": "000-x", "round": round}, 0.1)

    for message in (played(1), played(1), played(3), BlockSaved({"000-x": 3}, b"three")):
        recorder.take(0, message)
    assert recorder.saved(0) is None
    recorder.take(0, BlockSaved({"000-x": 1}, b"one"))
    assert recorder.saved(0) == b"one"
    recorder.close(complete=True)
    assert [line["round"] for line in read_lines(tmp_path / "history.jsonl")] == [1]


RUNS = [str(k) for k in range(6)]


COLOURS = st.lists(st.integers(0, 2), min_size=6, max_size=6)  # a run's block, by its colour


@given(
    st.lists(st.integers(0, 9), min_size=6, max_size=6),
    COLOURS,
    COLOURS,
    st.sets(st.integers(0, 2)),
)
def test_checkpoints_survive_another_division_into_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[int],
    old: list[int],
    new: list[int],
    done: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")

    def blocks(colours: list[int], runs: list[str]) -> dict[int, list[str]]:
        by_colour: dict[int, list[str]] = {}
        for run in runs:
            by_colour.setdefault(colours[int(run)], []).append(run)
        return {int(block[0]): block for block in by_colour.values()}

    before = Checkpoints(folder, "key")
    for index, block in blocks(old, RUNS).items():
        states = {}
        for run in block:
            server = {"x": torch.ones(2) * int(run)}
            states[run] = {"round": rounds[int(run)], "server": server}
        before.write(index, block_state("key", states, done=old[index] in done))
    read = Checkpoints(folder, "key")
    assert read.rounds == dict(zip(RUNS, rounds, strict=True))
    assert set(read.ended) == {run for run in RUNS if old[int(run)] in done}
    left = [run for run in RUNS if run not in read.ended]
    read.arrange(blocks(new, left).items())
    after = Checkpoints(folder, "key")
    assert after.rounds == read.rounds | dict(zip(RUNS, rounds, strict=True))
    assert after.blocks == {index: tuple(block) for index, block in blocks(new, left).items()}
    assert after.ended.keys() == read.ended.keys()
    for run, state in after.going.items():
        assert torch.equal(state["server"]["x"], torch.ones(2) * int(run))


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(tmp_path: Path) -> None:
    study = {**FAST, "seed": [0, 1]}
    (tmp_path / "script.py").write_text(
        f"import tacit\nprint('once')\ntacit.run({study}, 'out', workers=2)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr
    assert "2 worker processes" in (tmp_path / "out" / "environment.json").read_text()


def children(pid: int) -> set[int]:
    """A process's own workers, alive."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in pids}
    return {child for child, line in lines.items() if "spawn_main" in line}


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


PACED_MODEL = """
import os, time
from torch import nn

class Paced(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        time.sleep(float(os.environ.get("PACE", 0)))
        return super().forward(x)
"""


PACED_ROUNDS = 60


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a study of two runs, the model beside it, and its results.

    Where PACE is 0.04 it takes ten seconds or more, on any machine.
    """
    folder = tmp_path_factory.mktemp("paced")
    (folder / "beside.py").write_text(PACED_MODEL)
    study = f"dataset: iris\nmodel: beside:Paced\nrounds: {PACED_ROUNDS}\nseed: [0, 1]\n"
    (folder / "s.yaml").write_text(study)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        tacit.run(folder / "s.yaml", folder / "whole", workers=1)
        yield folder


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="tells processes by /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_study_that_is_stopped_leaves_no_worker_and_is_resumed_to_the_same_results(
    paced: Path, number: signal.Signals
) -> None:
    elsewhere = paced / number.name  # what lies beside the study is found all the same
    elsewhere.mkdir()
    command = [sys.executable, "-m", "tacit", "run", "../s.yaml", "--workers", "2", "--out", "long"]
    process = subprocess.Popen(
        command,
        cwd=elsewhere,
        env={**os.environ, "PACE": "0.04"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    folder = elsewhere / "long"
    while process.poll() is None and len(list((folder / "checkpoints").glob("block-*.pt"))) < 2:
        time.sleep(0.05)
    workers = children(process.pid)
    assert len(workers) == 2
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    assert process.returncode == codes[number]
    if number != signal.SIGKILL:
        resuming = f"cd {paced} && tacit run --resume {folder}"  # where the model is found
        assert said.splitlines()[-1] == f"stopped; continue with: {resuming}"
    while any(alive(pid) for pid in workers):
        time.sleep(0.05)
    again = Listener()
    tacit.resume(folder, workers=1, on_event=again)
    saved_rounds = again.of(StudyStarted)[0].done
    assert saved_rounds >= 2  # one of each run
    assert saved_rounds + len(again.of(RoundFinished)) == 2 * PACED_ROUNDS
    assert_same_results(folder, paced / "whole")


def test_without_ray_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "tacit.execution.ray", raising=False)
    with pytest.raises(MissingDependencyError, match=r'pip install "tacit\[ray\]"'):
        tacit.run(FAST, tmp_path / "a", on="ray")
    assert not (tmp_path / "a").exists()
