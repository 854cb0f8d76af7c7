"""Each combiner at K = 100 clients and P = 1,000,000 parameters: against NumPy, and against the bytes it must move.

"reads" is the time over that of one pass through the matrix in memory (a sum over its rows): what cannot be avoided.
Krum is also set against the one product X X^T that it needs, and its scores, in single precision, against double
precision for rows that differ by 1e-4 of their length. Usage: python benchmarks/aggregation.py [repeats] [clients]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
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
    """Updates with a common direction, as those of clients are."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(clients, P, generator=draw).add_(torch.randn(P, generator=draw))


def cohort(x: Tensor, combiner: Combiner) -> Cohort:
    """A round's replies; the server's loss is one that costs nothing, since Zeno's is the model's own work."""
    n = torch.ones(len(x), 1)
    return Cohort(
        {"dx": x},
        tuple(range(len(x))),
        n,
        n,
        len(x),
        float(len(x)),
        combiner,
        server_loss=free_loss,
    )


def free_loss(dx: Tensor, _size: int) -> Tensor:
    return dx[:, :1]


def behind_a_sum(x: Tensor) -> Tensor:
    """The mean where the server sees sums only: clients weight, the server adds."""
    n = torch.ones(len(x), 1)
    sums = Sum().add(weighted({"dx": x}, n, n))
    return SummedCohort(sums, tuple(range(len(x))), len(x), float(len(x))).combine("dx")


def numpy_krum(x: np.ndarray, f: int) -> np.ndarray:
    squares = (x * x).sum(1)
    distances = squares[:, None] + squares - 2 * x @ x.T
    np.fill_diagonal(distances, np.inf)
    return x[np.sort(distances, axis=1)[:, : len(x) - f - 2].sum(1).argmin()]


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
    f, b = clients // 5, clients // 5
    return {
        "mean": lambda x: x.mean(0),
        "krum": lambda x: numpy_krum(x, f),
        "median": lambda x: np.median(x, axis=0),
        "trimmed_mean": lambda x: numpy_trimmed_mean(x, b),
        "geometric_median": numpy_geometric_median,
    }


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median over turns, after one to warm up."""
    work()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    x = rows(clients)
    f = clients // 5
    specs: dict[str, Any] = {
        "krum": {"f": f},
        "multi_krum": {"f": f},
        "trimmed_mean": {"beta": 0.2},
        "zeno": {"b": f},
    }
    read = seconds(lambda: x.sum(0), repeats)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, K = {clients}, P = {P:,}, {repeats} turns"
    )
    print(f"one pass over {x.numel() * 4 / 1e9:.1f} GB: {read * 1e3:.0f} ms")
    compared = references(clients) if clients <= 200 else {}
    for name in Combiner.known():
        combiner = Combiner.build({"name": name, **specs.get(name, {})})
        ours = seconds(lambda c=combiner: c(x, cohort(x, c)), repeats)  # type: ignore[misc]
        line = f"{name:17s} ours {ours * 1e3:7.0f} ms, {ours / read:5.1f} reads"
        if name in compared:
            theirs = seconds(lambda n=name: compared[n](x.numpy()), 1)  # type: ignore[misc]
            line += f", NumPy {theirs * 1e3:7.0f} ms, ratio {ours / theirs:.3f}"
        print(line)
    behind = seconds(lambda: behind_a_sum(x), repeats)
    print(
        f"mean behind sum   ours {behind * 1e3:7.0f} ms, {behind / read:5.1f} reads, the clients' weighting included"
    )
    product = seconds(lambda: x @ x.T, repeats)
    krum = seconds(lambda: krum_scores(x, f), repeats)
    print(
        f"krum's scores {krum * 1e3:.0f} ms, X X^T {product * 1e3:.0f} ms, ratio {krum / product:.2f}"
    )
    close = x[0] * (
        1 + 1e-4 * torch.randn(min(clients, 50), P, generator=torch.Generator().manual_seed(1))
    )
    exact = krum_scores(close.double(), 10)
    print(
        f"krum's scores for rows 1e-4 apart: off by {((krum_scores(close, 10) - exact) / exact).abs().max():.1e}"
    )
    print(f"most memory held: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
