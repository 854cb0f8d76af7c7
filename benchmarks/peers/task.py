"""The work that every framework does: ten clients train one CNN on MNIST with federated averaging.

Needs torch alone, because it is imported in every peer's environment. A peer prints one line of JSON: what it is, when
its rounds began and ended on its own clock, and the accuracy after each.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
MARK = "TACIT_PEERS_TURN"
TEST_BATCH = 250  # the fastest of 100 to 2,000 for the bare loop
HEADERS = (16, 8, 16, 8)  # bytes before the pixels or labels


@dataclass(frozen=True)
class Task:
    """What is to be done, and on how many cores."""

    samples: int = 60_000
    clients: int = 10
    rounds: int = 5
    batch: int = 32
    lr: float = 0.05
    cores: int = 1
    cores_per_client: int = 1  # where clients can work side by side

    @classmethod
    def given(cls) -> Task:
        """The one on the command line; this process keeps to its share of the cores."""
        task = cls(**json.loads(sys.argv[1])) if len(sys.argv) > 1 else cls()
        torch.set_num_threads(
            max(1, task.cores // int(os.environ.get("WORLD_SIZE", "1")))
        )  # torchrun's
        torch.manual_seed(0)
        return task

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Clock:
    """Notes when the first round begins and each one ends with its test accuracy known: wall and processor seconds."""

    def __init__(self) -> None:
        self.begun = (0.0, 0.0)
        self.ends: list[tuple[float, float]] = []
        self.accuracies: list[float] = []

    def start(self) -> None:
        self.begun = (time.perf_counter(), cpu_seconds())

    def round_done(self, accuracy: float) -> None:
        self.ends.append((time.perf_counter(), cpu_seconds()))
        self.accuracies.append(accuracy)

    def report(self, **about: Any) -> None:
        if os.environ.get("RANK", "0") != "0":
            return
        ends = [
            [end - begun for end, begun in zip(both, self.begun, strict=True)] for both in self.ends
        ]
        used = max(
            cpu_seconds(), self.ends[-1][1]
        )  # actors that have gone by now were there after the last round
        found = {"ends": ends, "accuracies": self.accuracies, "cpu": used}
        print(json.dumps({**about, "torch": torch.__version__, **found}))


def cpu_seconds() -> float:
    """What all processes of this turn have used: on a busy machine more telling than the wall's clock.

    They are known by a mark in their environment, which whatever they start inherits. Where there is no /proc, this
    process alone is counted.
    """
    mark = f"{MARK}={os.environ.get(MARK, '')}\0".encode()
    ticks = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes():
                ticks += sum(
                    map(int, (place / "stat").read_text().rpartition(")")[2].split()[11:15])
                )
        except OSError:  # it has ended, or is somebody else's
            continue
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else time.process_time()


def make_model() -> nn.Module:
    """Two 5 x 5 convolutions (6, 16) with pooling, then 120-84-10, from the same first weights everywhere."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(
                nn.Flatten(),
                nn.Linear(256, 120),
                nn.ReLU(),
                nn.Linear(120, 84),
                nn.ReLU(),
                nn.Linear(84, 10),
            ),
        )


def has_mnist() -> bool:
    return all(path.exists() for path in _paths())


@lru_cache(maxsize=1)
def load(samples: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pictures and labels, test pictures and labels: MNIST or, where TACIT_DATA holds none, noise."""
    if not has_mnist():
        return _noise(samples)
    raw = [gzip.decompress(path.read_bytes()) for path in _paths()]
    bodies = [bytearray(part[skip:]) for part, skip in zip(raw, HEADERS, strict=True)]
    found = [torch.frombuffer(body, dtype=torch.uint8) for body in bodies]
    x, test_x = (part.view(-1, 1, 28, 28).float().div_(255) for part in found[::2])
    y, test_y = (part.long() for part in found[1::2])
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:samples]
    return x[chosen], y[chosen], test_x, test_y


def client_data(task: Task, client: int) -> tuple[Tensor, Tensor]:
    """An equal share; the samples are in random order already."""
    x, y, _, _ = load(task.samples)
    return x.tensor_split(task.clients)[client], y.tensor_split(task.clients)[client]


@torch.no_grad()
def test(module: nn.Module, task: Task) -> float:
    """The accuracy on the whole test set."""
    _, _, x, y = load(task.samples)
    module.eval()
    pairs = zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True)
    hits = [(module(pictures).argmax(1) == labels).sum() for pictures, labels in pairs]
    return float(sum(hits)) / len(y)


def warm_up() -> None:
    """Makes an optimiser: the first one imports a part of torch for a second, which belongs to the start-up."""
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)


def train(module: nn.Module, x: Tensor, y: Tensor, task: Task) -> None:
    """One shuffled pass, as one writes it by hand."""
    optimiser = torch.optim.SGD(module.parameters(), lr=task.lr, fused=True)
    module.train()
    for batch in torch.randperm(len(x)).split(task.batch):
        optimiser.zero_grad()
        functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimiser.step()


def _paths() -> list[Path]:
    folder = Path(os.environ.get("TACIT_DATA", "."))
    return [folder / "mnist" / f"{name}.gz" for name in FILES]


def _noise(samples: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    sizes = [samples, 10_000]
    x, test_x = (torch.rand(size, 1, 28, 28, generator=draw) for size in sizes)
    y, test_y = (torch.randint(0, 10, (size,), generator=draw) for size in sizes)
    return x, y, test_x, test_y
