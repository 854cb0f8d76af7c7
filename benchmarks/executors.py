"""What spreading a study costs and gains: the same runs here with one thread, here with all, and in two workers.

Eight runs of a small MLP on digits, where a step is short, and four of the CNN on pictures of noise. Each is timed from
its start to its last file, the start of the processes and the report included, taking turns.
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
from tacit.execution.devices import cores

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
PLACES = {
    "here, 1 thread": {"workers": 1, "threads": 1},
    "here, all threads": {"workers": 1, "threads": cores()},
    "2 workers": {"workers": 2, "threads": 1},
}


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Noise of CIFAR's shape, and labels at random."""
    rng = np.random.default_rng(0)
    return rng.random((4000, 3, 32, 32), dtype=np.float32), rng.integers(0, 10, 4000)


def measure(study: dict[str, Any], places: dict[str, int]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        tacit.run(study, Path(folder) / "out", **places)  # type: ignore[arg-type]
        return time.perf_counter() - start


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{cores()} cores, {repeats} turns")
    for name, study in STUDIES.items():
        turns = [
            {place: measure(study, options) for place, options in PLACES.items()}
            for _ in range(repeats)
        ]
        base = next(iter(PLACES))
        for place in PLACES:
            seconds = statistics.median(turn[place] for turn in turns)
            ratio = statistics.median(turn[place] / turn[base] for turn in turns)
            print(f"{name}, {place}: {seconds:.1f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
