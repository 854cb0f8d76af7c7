"""Each combiner for K = 100 clients with P = 1,000,000 parameters, against NumPy and the memory.

The least that a combiner can take is one pass over the matrix in memory: a sum over its rows. Times
are also shown as a multiple of that pass. Krum is also compared with the one product X X^T that it
needs, and its scores in single precision with those in double precision, for rows that differ by
1e-4 of their length. Usage: python benchmarks/aggregation.py [repeats] [clients]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.federated.cohort import Cohort, SummedCohort, weighted
from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.krum import krum_scores
from tacit.federated.wire.sum import Sum

P = 1_000_000


def rows(clients: int) -> Tensor:
    """Updates with a common direction, as clients send them."""
    draw = torch.Generator().manual_seed(0)
    differences = torch.randn(clients, P, generator=draw)
    direction = torch.randn(P, generator=draw)
    return differences.add_(direction)


def cohort(x: Tensor, combiner: Combiner) -> Cohort:
    """A round's replies. The server's loss, which Zeno asks for, costs nothing here."""
    ones = torch.ones(len(x), 1)
    return Cohort(
        messages={"dx": x},
        ids=tuple(range(len(x))),
        samples=ones,
        steps=ones,
        population=len(x),
        everyone=float(len(x)),
        combiner=combiner,
        server_loss=free_loss,
    )


def free_loss(dx: Tensor, _size: int) -> Tensor:
    return dx[:, :1]


def behind_a_sum(x: Tensor) -> Tensor:
    """The mean where the server sees sums only: clients weight, the server adds."""
    clients = len(x)
    ones = torch.ones(clients, 1)
    sums = Sum().add(weighted({"dx": x}, ones, ones))
    cohort = SummedCohort(sums, tuple(range(clients)), clients, float(clients))
    return cohort.combine("dx")


def numpy_krum(x: np.ndarray, f: int) -> np.ndarray:
    squares = (x * x).sum(1)
    distances = squares[:, None] + squares - 2 * x @ x.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, : len(x) - f - 2]
    return x[nearest.sum(1).argmin()]


def numpy_geometric_median(x: np.ndarray) -> np.ndarray:
    z = x.mean(0)
    for _ in range(100):
        weights = 1 / np.maximum(np.linalg.norm(x - z, axis=1), 1e-6)
        new = weights @ x / weights.sum()
        if np.linalg.norm(new - z) <= 1e-6 * np.linalg.norm(z):
            return new
        z = new
    return z


def numpy_trimmed_mean(x: np.ndarray, b: int) -> np.ndarray:
    return np.sort(x, axis=0)[b : len(x) - b].mean(0)


def references(clients: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The rules in plain NumPy, by name."""
    fifth = clients // 5
    return {
        "mean": lambda x: x.mean(0),
        "krum": lambda x: numpy_krum(x, fifth),
        "median": lambda x: np.median(x, axis=0),
        "trimmed_mean": lambda x: numpy_trimmed_mean(x, fifth),
        "geometric_median": numpy_geometric_median,
    }


def combiners(clients: int) -> dict[str, Combiner]:
    """All combiners by name, prepared for a fifth of the clients to be liars."""
    liars = clients // 5
    settings: dict[str, dict[str, Any]] = {
        "krum": {"f": liars},
        "multi_krum": {"f": liars},
        "trimmed_mean": {"beta": 0.2},
        "zeno": {"b": liars},
    }
    built = {}
    for name in Combiner.known():
        built[name] = Combiner.build({"name": name, **settings.get(name, {})})
    return built


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """The median time of a call, after one call to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare_combiners(x: Tensor, one_pass: float, repeats: int) -> None:
    clients = len(x)
    rules = references(clients) if clients <= 200 else {}  # NumPy's take too long for more
    for name, combiner in combiners(clients).items():
        ours = seconds(partial(combine, combiner, x), repeats)
        line = f"{name:17s} {ours * 1e3:7.0f} ms, {ours / one_pass:5.1f} passes"
        if name in rules:
            numpy = seconds(partial(rules[name], x.numpy()), 1)
            line += f"; NumPy {numpy * 1e3:7.0f} ms; tacit takes {ours / numpy:.3f} of NumPy's time"
        print(line)
    behind = seconds(lambda: behind_a_sum(x), repeats)
    passes = f"{behind / one_pass:5.1f} passes"
    print(f"mean behind a sum {behind * 1e3:7.0f} ms, {passes}, the clients' weighting included")


def combine(combiner: Combiner, x: Tensor) -> Tensor:
    return combiner(x, cohort(x, combiner))


def examine_krum(x: Tensor, repeats: int) -> None:
    """Krum's time against that of its matrix product, and the precision of its scores."""
    product = seconds(lambda: x @ x.T, repeats)
    scores = seconds(lambda: krum_scores(x, len(x) // 5), repeats)
    times = f"{scores * 1e3:.0f} ms; the product X X^T takes {product * 1e3:.0f} ms"
    print(f"krum's scores take {times}, ratio {scores / product:.2f}")
    draw = torch.Generator().manual_seed(1)
    differences = torch.randn(min(len(x), 50), P, generator=draw)
    close = x[0] * (1 + 1e-4 * differences)
    exact = krum_scores(close.double(), 10)
    errors = (krum_scores(close, 10) - exact) / exact
    print(f"krum's scores for rows 1e-4 apart: largest relative error {errors.abs().max():.1e}")


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    x = rows(clients)
    one_pass = seconds(lambda: x.sum(0), repeats)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, medians of {repeats}")
    print(f"K = {clients} clients, P = {P:,} parameters")
    print(f"one pass over {x.numel() * 4 / 1e9:.1f} GB: {one_pass * 1e3:.0f} ms")
    compare_combiners(x, one_pass, repeats)
    examine_krum(x, repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory: {peak / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
