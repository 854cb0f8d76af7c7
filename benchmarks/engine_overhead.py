"""What our engine costs over a hand-written PyTorch loop: seconds per local step, as a ratio.

Both train with Adam and batches of 32, from tensors in memory, in one process, with the same threads, taking turns: the
CNN on 3 x 32 x 32 pictures, and a small MLP, where a step is so short that every call counts. The hand-written loop
uses torch's fused Adam. Ours is a whole round: seeds, batches, hooks, optimiser, metrics, aggregation.
Usage: python benchmarks/engine_overhead.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from tacit.data.datasets import Dataset
from tacit.models.model import Model
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study
from tacit.training.allocator import keep_freed_memory

STEPS, BATCH = 50, 32
SHAPES = {"cnn": (3, 32, 32), "mlp": (1, 8, 8)}


def pictures(shape: tuple[int, ...]) -> Dataset:
    """Noise of that shape: the arithmetic is the same, and nothing needs to be downloaded."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(STEPS * BATCH, *shape, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    return Dataset("noise", x, y, x[:BATCH], y[:BATCH], tuple("0123456789"))


def bare_loop(module: nn.Module, data: Dataset) -> None:
    """One epoch, as one writes it by hand."""
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    module.train()
    for batch in torch.randperm(len(data.x)).split(BATCH):
        optimiser.zero_grad()
        functional.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
        optimiser.step()


def measure(model: str, threads: int, repeats: int) -> tuple[float, float, float]:
    """Median milliseconds per step, ours and theirs, and the median of the ratios of neighbouring turns."""
    torch.set_num_threads(threads)
    data = pictures(SHAPES[model])
    settings = {
        "model": model,
        "clients": 1,
        "local_test": 0.0,
        "batch_size": BATCH,
        "optimiser": "adam",
    }
    run = Study(**settings, rounds=repeats + 2).runs()[0]  # type: ignore[arg-type]
    simulation = Simulation([("ours", run)], data)
    module = Model.build(model).make(SHAPES[model], 10)
    ours, theirs = [], []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        list(simulation.play_round())
        middle = time.perf_counter()
        bare_loop(module, data)
        ours.append((middle - start) / STEPS * 1e3)
        theirs.append((time.perf_counter() - middle) / STEPS * 1e3)
    ratio = statistics.median(a / b for a, b in zip(ours[2:], theirs[2:], strict=True))
    return statistics.median(ours[2:]), statistics.median(theirs[2:]), ratio


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print(f"torch {torch.__version__}, Adam, batch {BATCH}, {repeats} turns of {STEPS} steps")
    keep_freed_memory()  # as `tacit run` and its workers do; the hand-written loop gains from it too
    counts = sorted({1, torch.get_num_threads()})
    for model in SHAPES:
        for threads in counts:
            ours, theirs, ratio = measure(model, threads, repeats)
            print(
                f"{model}, threads {threads}: ours {ours:.2f} ms per step, by hand {theirs:.2f} ms, ratio {ratio:.3f}"
            )


if __name__ == "__main__":
    main()
