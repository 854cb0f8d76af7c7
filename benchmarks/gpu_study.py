"""Table 2.1 of the thesis and one of its runs on a GPU: how long they take, and on what.

The table has 25 runs of 50 rounds, 3 clients and CIFAR-10. Beside them: the same runs as a plain
eager PyTorch loop (from a few hundred steps), and the time that the arithmetic alone would take.
Needs CIFAR-10 in the folder that TACIT_DATA names; without it, pictures of noise are used, for the
times only.
Usage: python benchmarks/gpu_study.py [rounds]
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tacit.data.datasets import Dataset, Source, data_folder
from tacit.execution.blocks import group_runs
from tacit.models.model import Cnn
from tacit.simulation.kinds import horizontal as engine
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study

# of a sample: forward, weights, and inputs but the first layer's
FLOP = 2 * (2 * 352_800 + 3 * 240_000 + 3 * 58_920)
PEAK = {"float32": 67e12, "TF32": 494e12}  # an H200's, by its data sheet
SPLITS = [
    "iid",
    {"name": "label_dirichlet", "beta": 0.5},
    {"name": "quantity_skew", "beta": 0.5},
    {"name": "labels_per_party", "labels": [2, 3, 5]},
    {"name": "feature_noise", "sigma": 0.5},
]
FEDPROX = {"name": "fedprox", "mu": [0.001, 0.01, 0.1, 1]}
CIFAR10 = {"name": "cifar10", "pixels": "signed"}
COMMON = {"dataset": CIFAR10, "model": "cnn", "clients": 3, "optimiser": "adam", "local_epochs": 2}


def pictures() -> Dataset:
    """CIFAR-10, or noise of its shape."""
    if data_folder():
        return Source.build(CIFAR10).load(data_folder())
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60_000, 3, 32, 32), generator=draw) / torch.tensor(255.0)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    return Dataset("noise", x[:50_000], y[:50_000], x[50_000:], y[50_000:], tuple("0123456789"))


def timed(function: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    """The function, its seconds added up; what the GPU still has to do is waited for."""

    def call(*arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        result = function(*arguments, **options)
        torch.cuda.synchronize()
        spent[name] += time.perf_counter() - begin
        return result

    return call


def play(study: Study, data: Dataset) -> tuple[float, dict[str, float], int]:
    """Seconds in all, seconds by part, and the steps of all rows."""
    spent: dict[str, float] = defaultdict(float)
    begin, steps = time.perf_counter(), 0
    for group in group_runs([(str(k), run) for k, run in enumerate(study.runs())]):
        start = time.perf_counter()
        simulation = Simulation(group, data, device="cuda")
        spent["set-up: splits, data to the GPU"] += time.perf_counter() - start
        simulation.gather_drafts = timed(simulation.gather_drafts, "local training", spent)  # type: ignore[method-assign]
        simulation._deliver = timed(simulation._deliver, "aggregation", spent)  # type: ignore[method-assign]
        test_runs = engine.test_runs
        engine.test_runs = timed(test_runs, "tests of 15,000 samples a run", spent)
        while simulation.going:
            for record, _ in simulation.play_round():
                steps += sum(client["steps"] for client in record["clients"])
        engine.test_runs = test_runs
    total = time.perf_counter() - begin
    spent["the rest"] = total - sum(spent.values())
    return total, dict(spent), steps


def eager_step(data: Dataset, steps: int = 300) -> float:
    """Seconds per step of a loop written by hand."""
    module = Cnn().make((3, 32, 32), 10).cuda()
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    x, y = data.x[: 32 * 50].cuda(), data.y[: 32 * 50].cuda()
    for step in range(steps + 50):
        if step == 50:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        batch = torch.randint(0, len(x), (32,), device="cuda")
        optimiser.zero_grad()
        functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimiser.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def report(name: str, study: Study, data: Dataset, by_hand: float) -> None:
    total, spent, steps = play(study, data)
    floors = ", ".join(f"{steps * 32 * FLOP / peak:.2f} s in {kind}" for kind, peak in PEAK.items())
    each = f"{total / steps * 1e6:.1f} microseconds each"
    print(f"{name}: {total:.1f} s for {steps:,} steps of a row, {each}")
    eager = steps * by_hand
    ratio = f"{eager / total:.0f} times as long"
    print(f"  a plain eager loop: {eager:,.0f} s ({by_hand * 1e3:.2f} ms a step), {ratio}")
    print(f"  arithmetic alone, at the data sheet's peak: {floors}")
    for phase, seconds in sorted(spent.items(), key=lambda pair: -pair[1]):
        print(f"  {seconds:>7.1f} s {seconds / total:>5.0%}  {phase}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    if not torch.cuda.is_available():
        print("torch finds no GPU here")
        return
    begin = time.perf_counter()
    data = pictures()
    seconds = time.perf_counter() - begin
    machine = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    print(f"{machine}; {data.name} in {seconds:.1f} s")
    by_hand = eager_step(data)
    report("one run, FedAvg, IID", Study(**COMMON, rounds=rounds), data, by_hand)  # type: ignore[arg-type]
    table = Study(**COMMON, rounds=rounds, split=SPLITS, algorithm=["fedavg", FEDPROX])  # type: ignore[arg-type]
    report(f"table 2.1, {len(table.runs())} runs", table, data, by_hand)


if __name__ == "__main__":
    main()
