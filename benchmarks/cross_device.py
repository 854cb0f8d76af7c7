"""What very many clients cost, of which a fraction takes part in a round: time per round and peak memory.

Whole studies, with history and checkpoints: an MLP 64-64-10, 10 samples per client (9 to train on, in 2 batches; 1 to
test on), all in a process of their own, one after another. A round should cost what its cohort costs, whatever the
population. The data set grows with the population, as every client has its own samples; its size stands apart, and so
does the set-up, which draws and divides them. Memory is the peak of the whole process (resource.getrusage), also less
what Python, torch and the data set take by themselves.
All points are measured in turn, several times over; the table holds medians.
Usage: python benchmarks/cross_device.py [rounds] [passes]
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tacit.core.events import Event, RoundFinished
from tacit.data.datasets import Dataset
from tacit.execution.placement import Placement
from tacit.execution.runner import run_study
from tacit.simulation.engine import find_engine
from tacit.study.study import Study

EACH, TESTED = 10, 1000  # samples of a client, and of the global test
POPULATIONS, COHORTS = (1_000, 10_000, 100_000), (10, 100, 1_000)
MIDDLE = 10_000, 100
ALGORITHMS = ("fedavg", "scaffold")
POINT = "TACIT_CROSS_DEVICE_POINT"


def make_data() -> Dataset:
    """Ten separable clouds in 64 dimensions, so many samples for each client."""
    draw, samples = (
        torch.Generator().manual_seed(0),
        EACH * json.loads(os.environ[POINT])["clients"],
    )
    x = torch.randn(samples + TESTED, 64, generator=draw)
    y = torch.randint(0, 10, (samples + TESTED,), generator=draw)
    x[torch.arange(len(y)), y] += 3
    return Dataset(
        "clouds", x[:samples], y[:samples], x[samples:], y[samples:], tuple("0123456789")
    )


class Clock:
    """Notes when each round ends, and how large the memories' files are."""

    def __init__(self, folder: Path) -> None:
        self.start, self.folder, self.ends, self.stored = (
            time.perf_counter(),
            folder,
            list[float](),
            0,
        )

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.ends.append(time.perf_counter())
            self.stored = sum(file.stat().st_size for file in (self.folder / "memories").glob("*"))


def play(clients: int, cohort: int, algorithm: str, rounds: int) -> dict[str, float]:
    """One study in this process."""
    torch.set_num_threads(1)
    find_engine("horizontal")  # what that imports is not the study's
    bare = peak()
    study = Study(
        "crowd",
        dataset={"name": "function", "path": "cross_device:make_data"},
        model={"name": "mlp", "hidden": [64]},
        clients=clients,
        selection={"name": "fraction", "c": cohort / clients},
        algorithm=algorithm,
        optimiser={"name": "sgd", "lr": 0.1},
        batch_size=5,
        rounds=rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(Path(folder))
        run_study(study, Path(folder), Placement(workers=1), on_event=clock)
    times = [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)]
    data = (EACH * clients + TESTED) * (64 * 4 + 8) / 1e6
    return {
        "data": data,
        "set_up": clock.ends[0] - clock.start,  # with the first round
        "median": 1e3 * statistics.median(times),
        "mean": 1e3 * statistics.mean(times),
        "peak": peak(),
        "own": peak() - bare - data,
        "stored": clock.stored / 1e6,
    }


def peak() -> float:
    """Megabytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e3
    )


def measure(point: dict[str, Any]) -> dict[str, float]:
    """The same in a process of its own."""
    place = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    call = [sys.executable, str(Path(__file__))]
    done = subprocess.run(
        call,
        env={**os.environ, **place, POINT: json.dumps(point)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    rounds, passes = (int(given) for given in (*sys.argv[1:3], *("20", "3")[len(sys.argv) - 1 :]))
    points = [(clients, MIDDLE[1]) for clients in POPULATIONS] + [
        (MIDDLE[0], cohort) for cohort in COHORTS
    ]
    grid = [
        (name, clients, cohort) for name in ALGORITHMS for clients, cohort in dict.fromkeys(points)
    ]
    found: dict[tuple[str, int, int], list[dict[str, float]]] = {point: [] for point in grid}
    for name, clients, cohort in grid * passes:
        point = {"clients": clients, "cohort": cohort, "algorithm": name, "rounds": rounds}
        found[name, clients, cohort].append(measure(point))
    print(f"torch {torch.__version__}, one thread, {rounds} rounds, medians of {passes}")
    head = f"{'':9}{'clients':>8}{'cohort':>8}{'set-up s':>10}{'ms a round':>12}{'ms, mean':>10}"
    print(head + f"{'data MB':>9}{'peak MB':>9}{'own MB':>8}{'on disk MB':>12}")
    for (name, clients, cohort), measured in found.items():
        one = {key: statistics.median(each[key] for each in measured) for key in measured[0]}
        times = f"{one['set_up']:>10.1f}{one['median']:>12.1f}{one['mean']:>10.1f}"
        sizes = f"{one['data']:>9.0f}{one['peak']:>9.0f}{one['own']:>8.0f}{one['stored']:>12.0f}"
        print(f"{name:9}{clients:>8,}{cohort:>8,}{times}{sizes}")


if __name__ == "__main__":
    if POINT in os.environ:
        print(json.dumps(play(**json.loads(os.environ[POINT]))))
    else:
        main()
