"""What very many clients cost when a fraction of them takes part in a round: time and peak memory.

Each figure comes from a whole study, with history and checkpoints, in a process of its own: an MLP
64-64-10 and 10 samples per client (9 to train on, in 2 batches; 1 to test on). A round should cost
what its cohort costs, whatever the population. The data set grows with the population, since every
client has its own samples; so its size is shown separately, and so is the set-up, which draws and
divides the samples. Peak memory is that of the whole process (resource.getrusage); net memory is
the peak without Python, torch and the data set.
All points are measured in turn, several times over; the table shows medians.
Usage: python benchmarks/cross_device.py [rounds] [passes]
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from tacit.core.events import Event, RoundFinished
from tacit.data.datasets import Dataset
from tacit.execution.placement import Placement
from tacit.execution.runner import run_study
from tacit.simulation.engine import find_engine
from tacit.study.study import Study

SAMPLES = 10  # of a client
TEST_SAMPLES = 1000  # of the global test
FEATURES = 64
POINTS = (  # clients and cohort: first the population grows, then the cohort
    (1_000, 100),
    (10_000, 100),
    (100_000, 100),
    (10_000, 10),
    (10_000, 1_000),
)
ALGORITHMS = ("fedavg", "scaffold")
POINT = "TACIT_CROSS_DEVICE_POINT"  # the variable that tells a process what to measure


def make_data() -> Dataset:
    """Ten separable clouds in 64 dimensions, with ten samples for each client."""
    point = json.loads(os.environ[POINT])
    samples = SAMPLES * point["clients"]
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(samples + TEST_SAMPLES, FEATURES, generator=draw)
    y = torch.randint(0, 10, (samples + TEST_SAMPLES,), generator=draw)
    x[torch.arange(len(y)), y] += 3
    labels = tuple("0123456789")
    return Dataset("clouds", x[:samples], y[:samples], x[samples:], y[samples:], labels)


class Clock:
    """Notes when each round ends, and how large the files of the clients' memories are."""

    def __init__(self, folder: Path) -> None:
        self.start = time.perf_counter()
        self.folder = folder
        self.ends: list[float] = []
        self.stored = 0  # bytes

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.ends.append(time.perf_counter())
            memories = (self.folder / "memories").glob("*")
            self.stored = sum(file.stat().st_size for file in memories)


def play(clients: int, cohort: int, algorithm: str, rounds: int) -> dict[str, float]:
    """Runs one study in this process."""
    torch.set_num_threads(1)
    find_engine("horizontal")  # its imports do not count as the study's
    before = peak()
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
    times = [1e3 * (end - start) for start, end in itertools.pairwise(clock.ends)]
    after = peak()
    data = data_megabytes(clients)
    return {
        "data": data,
        "set_up": clock.ends[0] - clock.start,  # with the first round
        "median": statistics.median(times),
        "mean": statistics.mean(times),
        "peak": after,
        "net": after - before - data,
        "stored": clock.stored / 1e6,
    }


def data_megabytes(clients: int) -> float:
    """The size of the data set: a sample has 64 floats of four bytes and a label of eight."""
    samples = SAMPLES * clients + TEST_SAMPLES
    return samples * (FEATURES * 4 + 8) / 1e6


def peak() -> float:
    """The most megabytes that this process has held."""
    units = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / units


def measure(point: dict[str, Any]) -> dict[str, float]:
    """Runs one study in a process of its own."""
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        POINT: json.dumps(point),
    }
    command = [sys.executable, str(Path(__file__))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    passes = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    grid = [(name, clients, cohort) for name in ALGORITHMS for clients, cohort in POINTS]
    measured: dict[tuple[str, int, int], list[dict[str, float]]] = defaultdict(list)
    for name, clients, cohort in grid * passes:
        point = {"clients": clients, "cohort": cohort, "algorithm": name, "rounds": rounds}
        measured[name, clients, cohort].append(measure(point))
    print(f"torch {torch.__version__}, one thread, {rounds} rounds, medians of {passes}")
    head = f"{'':9}{'clients':>8}{'cohort':>8}{'set-up s':>10}{'ms a round':>12}{'ms, mean':>10}"
    print(head + f"{'data MB':>9}{'peak MB':>9}{'net MB':>8}{'on disk MB':>12}")
    for (name, clients, cohort), figures in measured.items():
        print(f"{name:9}{clients:>8,}{cohort:>8,}{line(figures)}")


def line(figures: list[dict[str, float]]) -> str:
    """The medians of a point, as the table shows them."""
    median = {key: statistics.median(turn[key] for turn in figures) for key in figures[0]}
    times = f"{median['set_up']:>10.1f}{median['median']:>12.1f}{median['mean']:>10.1f}"
    memory = f"{median['data']:>9.0f}{median['peak']:>9.0f}{median['net']:>8.0f}"
    return f"{times}{memory}{median['stored']:>12.0f}"


if __name__ == "__main__":
    if POINT in os.environ:
        point = json.loads(os.environ[POINT])
        print(json.dumps(play(**point)))
    else:
        main()
