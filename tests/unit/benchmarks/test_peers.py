"""The scripts that the frameworks are compared by: the same task for everybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.models.model import Model

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TASK = {"samples": 640, "clients": 10, "rounds": 2, "lr": 0.05}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    import peers.task  # type: ignore[import-not-found]

    return peers.task


def test_everybody_trains_the_same_cnn_from_the_same_weights(task: Any) -> None:
    ours = Model.build("cnn").make((1, 28, 28), 10)
    theirs = task.make_model()
    assert str(ours) == str(theirs)
    again = task.make_model()
    for first, second in zip(theirs.parameters(), again.parameters(), strict=True):
        assert torch.equal(first, second)


def test_every_sample_belongs_to_one_client(task: Any) -> None:
    settings = task.Task(samples=643)
    x, y, test_x, _ = task.load(643)
    shares = [task.client_data(settings, k) for k in range(settings.clients)]
    shares_x, shares_y = zip(*shares, strict=True)
    assert torch.equal(torch.cat(shares_x), x)
    assert torch.equal(torch.cat(shares_y), y)
    assert len(test_x) == 10_000


@pytest.mark.parametrize("script", ["bare", "ours"])
def test_a_peer_tells_when_its_rounds_ended_and_how_good_they_were(script: str) -> None:
    environment = dict(os.environ)
    environment.pop("TACIT_DATA", None)
    source = str(BENCHMARKS.parent / "src")
    environment["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", f"peers.{script}", json.dumps(TASK)],
        cwd=BENCHMARKS,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["accuracies"]) == TASK["rounds"]
    assert all(0 < accuracy < 1 for accuracy in report["accuracies"])
    wall, processor = zip(*report["ends"], strict=True)
    assert 0 < wall[0] < wall[1]
    assert 0 < processor[0] < processor[1] < report["cpu"]
