"""A run on its way: what the server knows, what each client remembers, and which samples are whose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.rows import Rows
from tacit.core.seeds import generator
from tacit.core.vectors import Layout
from tacit.data.datasets import Dataset
from tacit.data.partition import Partition, add_noise
from tacit.data.shards import Shards
from tacit.federated.algorithm import Server
from tacit.rounds import memories
from tacit.rounds.client import Memory, Participant, remembered
from tacit.rounds.server import ServerState
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.portrait import division_key
from tacit.study.run import Run
from tacit.study.study_data import try_out
from tacit.training.batches import Samples

SAVED = ("server", "buffers", "round", "status", "best", "stale")
MEMORIES = ("memory", "wire_memory")  # saved too


@dataclass(eq=False)
class RunProgress:
    """How far a run has come."""

    id: str
    run: Run
    round: int = field(default=0, kw_only=True)
    status: str = field(
        default="running", kw_only=True
    )  # then finished | target | patience | diverged
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
class RunState(RunProgress):
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
    wire_memory: memories.Memories = field(
        default_factory=dict
    )  # "0 dx" is the first stage's for entry dx
    folder: Path | None = (
        None  # for memories that are too many to hold; without one, a temporary file is used
    )

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

    @property
    def standing(self) -> ServerState:
        """What the server's half of a round starts from."""
        return ServerState(self.server, self.buffers, self.round)

    def participant(self, client: int, own_start: Tensor | None = None) -> Participant:
        """The client's place in this round."""
        memory = Memory(self.memory.get(client, {}), {})
        return Participant(
            self.run, client, self.round, self.train[client], self.initial, memory, own_start
        )

    def recall(self, client: int) -> Memory:
        """All that the client remembers, as it was after its last accepted reply, or new."""
        wire = self.wire_memory.get(client, {}) if self.run.wire else {}
        return replace(remembered(self.participant(client)), wire=wire)

    def remember(self, kept: Mapping[int, Memory]) -> None:
        """Keeps the next memories of the clients whose replies were accepted."""
        method = {client: memory.method for client, memory in kept.items() if memory.method}
        wire = {client: memory.wire for client, memory in kept.items() if memory.wire}
        self.memory = memories.updated(self.memory, method, self._shelf("memory"))
        self.wire_memory = memories.updated(self.wire_memory, wire, self._shelf("wire_memory"))

    @property
    def stores(self) -> list[memories.Stored]:
        """The memories that are in files."""
        return [
            part for part in (self.memory, self.wire_memory) if isinstance(part, memories.Stored)
        ]

    def _shelf(self, name: str) -> memories.Shelf:
        path = self.folder / f"{self.id}-{name}.bin" if self.folder else None
        return memories.Shelf(self.run.clients, path, self.initial.device)


@dataclass(frozen=True)
class GroupSamples:
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


class _Gathering:
    """The samples of a group's runs as they come together."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.x, self.y = [dataset.x], [dataset.y]
        self.noisy: dict[
            str, int
        ] = {}  # which samples have a run's noise on them; runs with the same noise share them

    def seen_by(self, run: HorizontalRun, partition: Partition, key: str) -> int:
        """The number of the samples that this run's clients see: the data set itself, or a copy with noise."""
        if not partition.noise.any():
            return 0
        if key not in self.noisy:
            self.noisy[key] = self._add(
                add_noise(self.dataset.x, partition, run.seed), self.dataset.y
            )
        return self.noisy[key]

    def poisoned(
        self, run: HorizontalRun, partition: Partition, seen: int, attackers: Sequence[int]
    ) -> dict[int, Tensor]:
        """What attackers have made of their samples: where these are, by client."""
        places = {}
        for client in attackers if run.attackers.poisons else ():
            shard = partition.train[client]
            draw = generator(run.seed, "poison", client)
            changed = run.attackers.poison(
                self.x[seen][shard], self.y[seen][shard], self.dataset.classes, draw
            )
            start = self.offset(self._add(*changed))
            places[client] = torch.arange(start, start + len(shard))
        return places

    def offset(self, number: int) -> int:
        """Where these samples begin."""
        return sum(len(y) for y in self.y[:number])

    def joined(self) -> Samples:
        return Samples(torch.cat(self.x) if len(self.x) > 1 else self.x[0], torch.cat(self.y))

    def _add(self, x: Tensor, y: Tensor) -> int:
        self.x.append(x)
        self.y.append(y)
        return len(self.y) - 1


def prepare(
    runs: Sequence[tuple[str, HorizontalRun]],
    dataset: Dataset,
    device: torch.device,
    partitions: Mapping[str, Partition] | None = None,
) -> tuple[GroupSamples, nn.Module, list[RunState]]:
    """The states of a group's runs, over one pool of samples; the module serves as a mould.

    `partitions` are divisions of the data that are known already, by `division_key`.
    """
    gathering, states = _Gathering(dataset), []
    divided = dict(partitions or {})
    for id, run in runs:
        key = division_key(run)
        divided[key], module = try_out(run, dataset, divided.get(key))
        partition = divided[key]
        seen = gathering.seen_by(run, partition, key)
        offset = gathering.offset(seen)
        train, test = (
            side.on(torch.device("cpu"), offset) for side in (partition.train, partition.test)
        )
        attackers = run.attackers.who(run.clients, run.seed) if run.attackers.count else ()
        if poisoned := gathering.poisoned(run, partition, seen, attackers):
            train = train.replaced(poisoned)
        sample = torch.from_numpy(partition.server).to(device)
        state = _start(id, run, module.to(device, dataset.x.dtype), (train, test, sample))
        states.append(replace(state, attackers=frozenset(attackers)))
    return GroupSamples(gathering.joined(), Samples(dataset.test_x, dataset.test_y)), module, states


def _start(
    id: str,
    run: HorizontalRun,
    module: nn.Module,
    samples: tuple[Shards[Tensor], Shards[Tensor], Tensor],
) -> RunState:
    layout = Layout.of(module)
    x = layout.flatten(module)
    server = run.algorithm.server_init(x, run.clients)
    return RunState(id, run, x, *samples, server=server, buffers=layout.copy_buffers(module))


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return (
        {key: _to(item, device) for key, item in value.items()}
        if isinstance(value, dict)
        else value
    )
