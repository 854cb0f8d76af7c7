"""What it costs and gains to spread a study over workers.

The same runs are played in this process with one thread, in this process with all threads, and by
two workers: eight runs of a small MLP on digits, where a step is short, and four runs of the CNN on
pictures of noise. Each is timed from its start to its last file, with the start of the processes
and the report, and they take turns.
Usage: python benchmarks/executors.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.core.machine import usable_cores

STUDIES: dict[str, dict[str, Any]] = {
    "8 runs, mlp on digits": {
        "dataset": "digits",
        "model": "mlp",
        "rounds": 20,
        "seed": list(range(8)),
    },
    "4 runs, cnn on noise": {
        "dataset": {"name": "function", "path": "executors:pictures"},
        "model": "cnn",
        "rounds": 3,
        "seed": list(range(4)),
    },
}
FIRST = "this process, 1 thread"
PLACEMENTS = {
    FIRST: {"workers": 1, "threads": 1},
    "this process, all threads": {"workers": 1, "threads": usable_cores()},
    "2 workers": {"workers": 2, "threads": 1},
}


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Noise of CIFAR's shape, and labels at random."""
    rng = np.random.default_rng(0)
    x = rng.random((4000, 3, 32, 32), dtype=np.float32)
    y = rng.integers(0, 10, 4000)
    return x, y


def measure(study: dict[str, Any], placement: dict[str, int]) -> float:
    """The seconds that a study takes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        tacit.run(study, Path(folder) / "out", **placement)  # type: ignore[arg-type]
        return time.perf_counter() - start


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{usable_cores()} cores, medians of {repeats}")
    for title, study in STUDIES.items():
        turns = [take_turn(study) for _ in range(repeats)]
        for name in PLACEMENTS:
            seconds = statistics.median(turn[name] for turn in turns)
            ratio = statistics.median(turn[name] / turn[FIRST] for turn in turns)
            print(f"{title}, {name}: {seconds:.1f} s, {ratio:.2f} of the time of one thread")


def take_turn(study: dict[str, Any]) -> dict[str, float]:
    """The seconds of each placement, one after another."""
    return {name: measure(study, placement) for name, placement in PLACEMENTS.items()}


if __name__ == "__main__":
    main()
