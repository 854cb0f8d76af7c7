"""A run on its way: what the server knows, what each client remembers, and which samples are whose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.rows import Rows, columns
from tacit.core.seeds import generator
from tacit.core.vectors import Layout
from tacit.data.datasets import Dataset
from tacit.data.partition import Partition, add_noise
from tacit.data.shards import Shards
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.client_side import client_class as client_class
from tacit.rounds import memories
from tacit.study.division import try_out as try_out
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.portrait import division_key
from tacit.study.run import Run
from tacit.training.batches import Samples
from tacit.training.fused import Network

SAVED = ("server", "buffers", "round", "status", "best", "stale")
MEMORIES = ("memory", "wire_memory")  # saved too


@dataclass(eq=False)
class Progress:
    """How far a run has come."""

    id: str
    run: Run
    round: int = field(default=0, kw_only=True)
    status: str = field(default="running", kw_only=True)  # then finished | target | patience | diverged
    best: float = field(default=-math.inf, kw_only=True)  # score so far
    stale: int = field(default=0, kw_only=True)  # rounds since the best one
    seconds: float = field(default=0.0, kw_only=True)  # of the current round

    def judge(self, score: float | None) -> None:
        """Whether the run goes on after a round that ended with this score."""
        if self.status == "diverged" or score is None:
            return
        self.stale = 0 if score > self.best else self.stale + 1
        self.best = max(self.best, score)
        run = self.run
        if run.target_accuracy is not None and score >= run.target_accuracy:
            self.status = "target"
        elif run.patience is not None and self.stale >= run.patience:
            self.status = "patience"
        elif self.round >= run.rounds:
            self.status = "finished"


@dataclass(eq=False)
class RunState(Progress):
    """One run. Only the engine changes it, and only between rounds."""

    run: HorizontalRun
    initial: Tensor  # (P,), before the first round
    train: Shards[Tensor]  # each client's samples, as indices into the pool
    test: Shards[Tensor]
    sample: Tensor  # the server's own
    server: Server
    buffers: Rows
    attackers: frozenset[int] = frozenset()
    memory: memories.Memories = field(default_factory=dict)
    wire_memory: memories.Memories = field(default_factory=dict)  # "0 dx" is the first stage's for entry dx
    folder: Path | None = None  # for memories that are too many to hold; without one, a temporary file is used

    def saved(self, *, whole: bool = False) -> dict[str, Any]:
        """What a checkpoint keeps; the rest follows from the run.

        Memories in a file stay there, unless the state is to travel without it, `whole`.
        """
        kept = {name: memories.saved(getattr(self, name), whole=whole) for name in MEMORIES}
        return {name: getattr(self, name) for name in SAVED} | kept

    def restore(self, saved: Mapping[str, Any]) -> None:
        for name in SAVED:
            setattr(self, name, _to(saved[name], self.initial.device))
        for name in MEMORIES:
            setattr(self, name, memories.restored(saved[name], self._shelf(name)))

    def remember(self, memory: Mapping[int, Rows], wire_memory: Mapping[int, Rows]) -> None:
        """Keeps the next memories of the clients whose replies were accepted."""
        self.memory = memories.updated(self.memory, memory, self._shelf("memory"))
        self.wire_memory = memories.updated(self.wire_memory, wire_memory, self._shelf("wire_memory"))

    @property
    def stores(self) -> list[memories.Stored]:
        """The memories that are in files."""
        return [part for part in (self.memory, self.wire_memory) if isinstance(part, memories.Stored)]

    def _shelf(self, name: str) -> memories.Shelf:
        path = self.folder / f"{self.id}-{name}.bin" if self.folder else None
        return memories.Shelf(self.run.clients, path, self.initial.device)


@dataclass(frozen=True)
class Pool:
    """The samples of all runs of a group: the data set, a copy for each kind of noise on it, and attackers' samples."""

    train: Samples
    test: Samples

    @property
    def x(self) -> Tensor:
        return self.train.features(slice(None))

    @property
    def y(self) -> Tensor:
        return self.train.y

    @property
    def test_x(self) -> Tensor:
        return self.test.features(slice(None))

    @property
    def test_y(self) -> Tensor:
        return self.test.y

    def on(self, device: torch.device, network: Network | None, *, compact: bool) -> Pool:
        """On a device; `compact` keeps pictures as bytes, and in the order in which the network reads them."""
        make = Samples.compact if compact else Samples
        sides = (self.train, self.test)  # kernels read samples one after another
        parts = [make(part.x.to(device).contiguous(), part.y.to(device).contiguous()) for part in sides]
        return Pool(*(part.pack(network.pack) if network and network.packs else part for part in parts))


def prepare(
    runs: Sequence[tuple[str, HorizontalRun]],
    dataset: Dataset,
    device: torch.device,
    partitions: Mapping[str, Partition] | None = None,
) -> tuple[Pool, nn.Module, list[RunState]]:
    """The states of a group's runs, over one pool of samples; the module serves as a mould.

    `partitions` are divisions of the data that are known already, by `division_key`.
    """
    samples, states = [(dataset.x, dataset.y)], []
    copies: dict[str, int] = {}  # which samples have a run's noise on them; runs that see the same noise share them
    divided = dict(partitions or {})
    for id, run in runs:
        look = division_key(run)
        partition, module = try_out(run, dataset, divided.get(look))
        divided[look] = partition
        if partition.noise.any() and look not in copies:
            copies[look] = len(samples)
            samples.append((add_noise(dataset.x, partition, run.seed), dataset.y))
        seen = copies.get(look, 0)
        offset = sum(len(y) for _, y in samples[:seen])
        train, test = (side.on(torch.device("cpu"), offset) for side in (partition.train, partition.test))
        attackers = run.attackers.who(run.clients, run.seed) if run.attackers.count else ()
        start, poisoned = sum(len(y) for _, y in samples), dict[int, Tensor]()
        for client in attackers if run.attackers.poisons else ():
            x, y = (part[partition.train[client]] for part in samples[seen])
            samples.append(run.attackers.poison(x, y, dataset.classes, generator(run.seed, "poison", client)))
            poisoned[client] = torch.arange(start, start + len(y))
            start += len(y)
        train = train.replaced(poisoned) if poisoned else train
        sample = torch.from_numpy(partition.server).to(device)
        state = _start(id, run, module.to(device, dataset.x.dtype), (train, test, sample))
        states.append(replace(state, attackers=frozenset(attackers)))
    xs, ys = zip(*samples, strict=True)
    train_samples = Samples(torch.cat(xs) if len(xs) > 1 else xs[0], torch.cat(ys))
    return Pool(train_samples, Samples(dataset.test_x, dataset.test_y)), module, states


def client_view(states: Sequence[RunState], like: Tensor) -> Algorithm:
    """The client's side of these runs' algorithms, one row each, with columns for float fields."""
    algorithms = [state.run.algorithm for state in states]
    return columns(algorithms, client_class(type(algorithms[0])), like)


def is_personal(run: Run) -> bool:
    """Whether clients are tested on models of their own, and not all on the global one."""
    return run.is_personal


def memory_of(state: RunState, client: int) -> Rows:
    """The client's memory, as it was after its last accepted reply, or new."""
    if client not in state.memory:
        x = state.initial[None]
        return client_view([state], x).client_init(x)
    return state.memory[client]


def broadcast(state: RunState, client: int) -> Rows:
    """What the server sends to a client, as one row."""
    x = state.server["x"]
    sent = state.run.algorithm.send(state.server, client)
    return {name: torch.as_tensor(value).to(x).reshape(1, -1) for name, value in sent.items()}


def _start(
    id: str, run: HorizontalRun, module: nn.Module, samples: tuple[Shards[Tensor], Shards[Tensor], Tensor]
) -> RunState:
    layout = Layout.of(module)
    x = layout.flatten(module)
    server = run.algorithm.server_init(x, run.clients)
    return RunState(id, run, x, *samples, server=server, buffers=layout.copy_buffers(module))


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
