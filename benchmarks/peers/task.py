"""The work that every framework does: ten clients train one CNN on MNIST with federated averaging.

This module needs torch alone, because it is imported in every peer's environment. A peer prints
one line of JSON: its name and version, the seconds from the start of the first round to the end of
each, and the accuracy after each.
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

import torch
from torch import Tensor, nn
from torch.nn import functional

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
MARK = "TACIT_PEERS_TURN"  # a variable that all processes of a turn share
TEST_BATCH = 250  # the fastest of 100 to 2,000 for the bare loop
HEADERS = (16, 8, 16, 8)  # bytes before the pixels or labels


@dataclass(frozen=True)
class Task:
    """The settings of the training, and how many cores it may use."""

    samples: int = 60_000
    clients: int = 10
    rounds: int = 5
    batch: int = 32
    lr: float = 0.05
    cores: int = 1
    cores_per_client: int = 1  # where clients can train side by side

    @classmethod
    def from_command_line(cls) -> Task:
        """The task in the first argument; also limits this process to its share of the cores."""
        settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
        task = cls(**settings)
        processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
        torch.set_num_threads(max(1, task.cores // processes))
        torch.manual_seed(0)
        return task

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Clock:
    """Notes when the first round begins, and when each round's test accuracy has been measured.

    All times are pairs of wall and processor seconds.
    """

    def __init__(self) -> None:
        self.begun = (0.0, 0.0)
        self.ends: list[tuple[float, float]] = []
        self.accuracies: list[float] = []

    def start(self) -> None:
        self.begun = (time.perf_counter(), cpu_seconds())

    def round_done(self, accuracy: float) -> None:
        self.ends.append((time.perf_counter(), cpu_seconds()))
        self.accuracies.append(accuracy)

    def report(self, **program: str) -> None:
        """Prints the line of JSON; of several processes only the first does."""
        if os.environ.get("RANK", "0") != "0":
            return
        begun_wall, begun_cpu = self.begun
        ends = [[wall - begun_wall, cpu - begun_cpu] for wall, cpu in self.ends]
        # actors that have ended by now were counted after the last round
        cpu = max(cpu_seconds(), self.ends[-1][1])
        line = {
            **program,
            "torch": torch.__version__,
            "ends": ends,
            "accuracies": self.accuracies,
            "cpu": cpu,
        }
        print(json.dumps(line))


def cpu_seconds() -> float:
    """The processor seconds of all processes of this turn.

    On a busy machine they say more than the wall clock. The processes are recognised by a mark in
    their environment, which they pass on to the processes that they start. Where there is no
    /proc, this process alone is counted.
    """
    mark = f"{MARK}={os.environ.get(MARK, '')}\0".encode()
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                ticks += cpu_ticks(process)
        except OSError:  # it has ended, or belongs to another user
            continue
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else time.process_time()


def cpu_ticks(process: Path) -> int:
    """Clock ticks of a process and its ended children, in user and kernel mode: see proc(5)."""
    _, _, after_name = (process / "stat").read_text().rpartition(")")
    fields = after_name.split()
    return sum(int(field) for field in fields[11:15])


def make_model() -> nn.Module:
    """Two 5 x 5 convolutions (6, 16) with pooling, then 120-84-10; always the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )


def has_mnist() -> bool:
    return all(path.exists() for path in _paths())


@lru_cache(maxsize=1)
def load(samples: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pictures and labels, test pictures and labels: of MNIST, or noise without it."""
    if not has_mnist():
        return _noise(samples)
    arrays = []
    for path, header in zip(_paths(), HEADERS, strict=True):
        content = gzip.decompress(path.read_bytes())
        arrays.append(torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8))
    x, y, test_x, test_y = arrays
    draw = torch.Generator().manual_seed(0)
    y = y.long()
    chosen = torch.randperm(len(y), generator=draw)[:samples]
    return _pixels(x)[chosen], y[chosen], _pixels(test_x), test_y.long()


def client_data(task: Task, client: int) -> tuple[Tensor, Tensor]:
    """An equal share; the samples are in random order already."""
    x, y, _, _ = load(task.samples)
    shares_x = x.tensor_split(task.clients)
    shares_y = y.tensor_split(task.clients)
    return shares_x[client], shares_y[client]


@torch.no_grad()
def test(module: nn.Module, task: Task) -> float:
    """The accuracy on the whole test set."""
    _, _, x, y = load(task.samples)
    module.eval()
    batches = zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True)
    hits = [(module(pictures).argmax(1) == labels).sum() for pictures, labels in batches]
    return float(sum(hits)) / len(y)


def warm_up() -> None:
    """Makes an optimiser: torch's first one imports for a second, which is not training time."""
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)


def train(module: nn.Module, x: Tensor, y: Tensor, task: Task) -> None:
    """One shuffled pass, as it is written by hand."""
    optimiser = torch.optim.SGD(module.parameters(), lr=task.lr, fused=True)
    module.train()
    for batch in torch.randperm(len(x)).split(task.batch):
        optimiser.zero_grad()
        functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimiser.step()


def _paths() -> list[Path]:
    folder = Path(os.environ.get("TACIT_DATA", "."))
    return [folder / "mnist" / f"{name}.gz" for name in FILES]


def _pixels(values: Tensor) -> Tensor:
    return values.view(-1, 1, 28, 28).float().div_(255)


def _noise(samples: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    tested = 10_000
    x = torch.rand(samples, 1, 28, 28, generator=draw)
    test_x = torch.rand(tested, 1, 28, 28, generator=draw)
    y = torch.randint(0, 10, (samples,), generator=draw)
    test_y = torch.randint(0, 10, (tested,), generator=draw)
    return x, y, test_x, test_y
