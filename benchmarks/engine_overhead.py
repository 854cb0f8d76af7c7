"""What tacit's engine costs over a hand-written PyTorch loop: milliseconds per local step.

Both train with Adam and batches of 32, from tensors in memory, in one process and with the same
threads, taking turns: the CNN on 3 x 32 x 32 pictures, and a small MLP whose steps are so short
that every call counts. The hand-written loop uses torch's fused Adam. tacit plays whole rounds:
seeds, batches, hooks, optimiser, metrics, aggregation.
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

STEPS = 50
BATCH = 32
WARM_UP = 2  # turns that are not counted
SHAPES = {"cnn": (3, 32, 32), "mlp": (1, 8, 8)}


def pictures(shape: tuple[int, ...]) -> Dataset:
    """Noise of that shape: the arithmetic is the same, and nothing needs to be downloaded."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(STEPS * BATCH, *shape, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    return Dataset("noise", x, y, x[:BATCH], y[:BATCH], tuple("0123456789"))


def bare_loop(module: nn.Module, data: Dataset) -> None:
    """One epoch, as it is written by hand."""
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    module.train()
    for batch in torch.randperm(len(data.x)).split(BATCH):
        optimiser.zero_grad()
        loss = functional.cross_entropy(module(data.x[batch]), data.y[batch])
        loss.backward()
        optimiser.step()


def measure(model: str, threads: int, repeats: int) -> tuple[float, float, float]:
    """Median milliseconds per step, with tacit and by hand, and the median ratio within a turn."""
    torch.set_num_threads(threads)
    data = pictures(SHAPES[model])
    turns = repeats + WARM_UP
    study = Study(
        model=model,
        clients=1,
        local_test=0.0,
        batch_size=BATCH,
        optimiser="adam",
        rounds=turns,
    )
    simulation = Simulation([("ours", study.runs()[0])], data)
    module = Model.build(model).make(SHAPES[model], 10)
    ours = []
    by_hand = []
    for _ in range(turns):
        start = time.perf_counter()
        list(simulation.play_round())
        middle = time.perf_counter()
        bare_loop(module, data)
        end = time.perf_counter()
        ours.append((middle - start) / STEPS * 1e3)
        by_hand.append((end - middle) / STEPS * 1e3)
    ours = ours[WARM_UP:]
    by_hand = by_hand[WARM_UP:]
    ratios = [ours_ms / hand_ms for ours_ms, hand_ms in zip(ours, by_hand, strict=True)]
    return statistics.median(ours), statistics.median(by_hand), statistics.median(ratios)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print(f"torch {torch.__version__}, Adam, batch {BATCH}, {repeats} turns of {STEPS} steps")
    keep_freed_memory()  # as `tacit run` does; the hand-written loop gains from it too
    thread_counts = sorted({1, torch.get_num_threads()})
    for model in SHAPES:
        for threads in thread_counts:
            ours, by_hand, ratio = measure(model, threads, repeats)
            print(
                f"{model}, {threads} threads: {ours:.2f} ms per step, by hand {by_hand:.2f} ms; "
                f"tacit takes {ratio:.3f} of the hand-written loop's time"
            )


if __name__ == "__main__":
    main()
