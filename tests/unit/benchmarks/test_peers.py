from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tacit.models.model import Model

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TASK = {"samples": 640, "clients": 10, "rounds": 2, "lr": 0.05}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    import peers.task  # type: ignore[import-not-found]

    return peers.task


def test_everybody_trains_the_same_cnn_from_the_same_weights(task: object) -> None:
    ours, theirs = Model.build("cnn").make((1, 28, 28), 10), task.make_model()  # type: ignore[attr-defined]
    assert str(ours) == str(theirs)
    again = task.make_model()  # type: ignore[attr-defined]
    assert all(
        torch.equal(a, b) for a, b in zip(theirs.parameters(), again.parameters(), strict=True)
    )


def test_every_sample_belongs_to_one_client(task: object) -> None:
    given = task.Task(samples=643)  # type: ignore[attr-defined]
    x, y, test_x, _ = task.load(643)  # type: ignore[attr-defined]
    shares = [task.client_data(given, k) for k in range(given.clients)]  # type: ignore[attr-defined]
    assert torch.equal(torch.cat([part for part, _ in shares]), x)
    assert torch.equal(torch.cat([part for _, part in shares]), y)
    assert len(test_x) == 10_000


@pytest.mark.parametrize("script", ["bare", "ours"])
def test_a_peer_tells_when_its_rounds_ended_and_how_good_they_were(script: str) -> None:
    away = {name: value for name, value in os.environ.items() if name != "TACIT_DATA"}
    source = os.pathsep.join([str(BENCHMARKS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", f"peers.{script}", json.dumps(TASK)],
        cwd=BENCHMARKS,
        env={**away, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["accuracies"]) == TASK["rounds"]
    assert all(0 < accuracy < 1 for accuracy in told["accuracies"])
    wall, processor = zip(*told["ends"], strict=True)
    assert 0 < wall[0] < wall[1]
    assert 0 < processor[0] < processor[1] < told["cpu"]
