"""A run on its way: the server's state, the clients' memories, and the samples that each has."""

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
from tacit.rounds.participant import Memory, Participant, remembered
from tacit.rounds.server_state import ServerState
from tacit.study.divisions import division_key
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.run import Run
from tacit.study.study_data import try_out
from tacit.training.batches import Samples
from tacit.training.metrics import Metric

SAVED = ("server", "buffers", "round", "status", "best", "stale")
# saved too: the names in checkpoints and of files, and those in a state
MEMORIES = {"memory": "method_memory", "wire_memory": "wire_memory"}


@dataclass(eq=False)
class RunProgress:
    """How far a run has come."""

    id: str
    run: Run
    round: int = field(default=0, kw_only=True)
    # finished, target, patience or diverged, once it has ended
    status: str = field(default="running", kw_only=True)
    best: float = field(default=-math.inf, kw_only=True)  # the merit of the best round so far
    stale: int = field(default=0, kw_only=True)  # rounds since then
    seconds: float = field(default=0.0, kw_only=True)  # of the current round

    def update_status(self, figure: float | None, metric: Metric) -> None:
        """Decides whether the run goes on after a round that ended with this figure."""
        if self.status == "diverged":
            return
        run = self.run
        merit = -math.inf if figure is None else metric.merit(figure)
        self.stale = 0 if merit > self.best else self.stale + 1
        self.best = max(self.best, merit)
        if run.target_accuracy is not None and merit >= metric.merit(run.target_accuracy):
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
    train: Shards[Tensor]  # each client's samples, as indices into the block's
    test: Shards[Tensor]
    sample: Tensor  # the server's own
    server: Server
    buffers: Rows
    offset: int = 0  # of its samples in the block's, behind those of the data set
    attackers: frozenset[int] = frozenset()
    method_memory: memories.Memories = field(default_factory=dict)
    # "0 dx" is the first stage's for the entry dx
    wire_memory: memories.Memories = field(default_factory=dict)
    # for memories that are too many to hold; without one, temporary files are used
    folder: Path | None = None

    def saved(self, *, portable: bool = False) -> dict[str, Any]:
        """What a checkpoint keeps; the rest follows from the run.

        Memories in a file stay there, unless the checkpoint is to be `portable`.
        """
        state = {name: getattr(self, name) for name in SAVED}
        for name, attribute in MEMORIES.items():
            state[name] = memories.saved(getattr(self, attribute), portable=portable)
        return state

    def restore(self, saved: Mapping[str, Any]) -> None:
        for name in SAVED:
            setattr(self, name, _to(saved[name], self.initial.device))
        for name, attribute in MEMORIES.items():
            restored = memories.restored(saved[name], self._storage(name))
            setattr(self, attribute, restored)

    @property
    def server_state(self) -> ServerState:
        """What the server's half of a round starts from."""
        return ServerState(self.server, self.buffers, self.round)

    def participant(self, client: int, own_start: Tensor | None = None) -> Participant:
        """The client in this round, without what its wire remembers."""
        return Participant(
            run=self.run,
            client=client,
            round=self.round,
            shard=self.train[client],
            initial=self.initial,
            memory=Memory(self.method_memory.get(client, {})),
            own_start=own_start,
        )

    def recall(self, client: int) -> Memory:
        """All that the client remembers, as it was after its last accepted reply, or new."""
        memory = remembered(self.participant(client))
        wire = self.wire_memory.get(client, {}) if self.run.wire else {}
        return replace(memory, wire=wire)

    def remember(self, accepted: Mapping[int, Memory]) -> None:
        """Keeps the next memories of the clients whose replies were accepted."""
        method = {}
        wire = {}
        for client, memory in accepted.items():
            if memory.method:
                method[client] = memory.method
            if memory.wire:
                wire[client] = memory.wire
        method_storage = self._storage("memory")
        wire_storage = self._storage("wire_memory")
        self.method_memory = memories.updated(self.method_memory, method, method_storage)
        self.wire_memory = memories.updated(self.wire_memory, wire, wire_storage)

    @property
    def stores(self) -> list[memories.StoredMemories]:
        """The memories that are in files."""
        both = (self.method_memory, self.wire_memory)
        return [store for store in both if isinstance(store, memories.StoredMemories)]

    def _storage(self, name: str) -> memories.FileStorage:
        path = self.folder / f"{self.id}-{name}.bin" if self.folder else None
        return memories.FileStorage(self.run.clients, path, self.initial.device)


@dataclass(frozen=True)
class BlockSamples:
    """The samples of all runs of a block.

    They are the data set, a copy of it for each kind of noise, and what attackers made of theirs.
    """

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
    """The samples of a block's runs as they come together: segments, one after another.

    The first segment is the data set.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.x = [dataset.x]
        self.y = [dataset.y]
        self.noisy: dict[str, int] = {}  # the segments with noise, by `division_key`

    def seen_by(self, run: HorizontalRun, partition: Partition) -> int:
        """The number of the segment that this run's clients see.

        It is the data set itself, or a copy with noise; runs with the same noise share the copy.
        """
        if not partition.noise.any():
            return 0
        key = division_key(run)
        if key not in self.noisy:
            noisy_x = add_noise(self.dataset.x, partition, run.seed)
            self.noisy[key] = self._add(noisy_x, self.dataset.y)
        return self.noisy[key]

    def poison(
        self, run: HorizontalRun, partition: Partition, segment: int, attackers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Adds what attackers make of their samples in a segment; by client, the new indices."""
        indices = {}
        for client in attackers:
            shard = partition.train[client]
            x = self.x[segment][shard]
            y = self.y[segment][shard]
            rng = generator(run.seed, "poison", client)
            x, y = run.attackers.poison(x, y, self.dataset.classes, rng)
            start = self.offset(self._add(x, y))
            indices[client] = torch.arange(start, start + len(shard))
        return indices

    def offset(self, segment: int) -> int:
        """The index of the segment's first sample."""
        return sum(len(y) for y in self.y[:segment])

    def joined(self) -> Samples:
        if len(self.x) == 1:  # no need to copy the data set's pictures
            return Samples(self.x[0], torch.cat(self.y))
        return Samples(torch.cat(self.x), torch.cat(self.y))

    def _add(self, x: Tensor, y: Tensor) -> int:
        self.x.append(x)
        self.y.append(y)
        return len(self.y) - 1


def prepare(
    runs: Sequence[tuple[str, HorizontalRun]],
    dataset: Dataset,
    device: torch.device,
    partitions: Mapping[str, Partition] | None = None,
) -> tuple[BlockSamples, nn.Module, list[RunState]]:
    """The samples of a block's runs, a module that all their models have the form of, and states.

    `partitions` are divisions of the data that were made before, by `division_key`.
    """
    gathering = _Gathering(dataset)
    divided = dict(partitions or {})
    states = []
    for id, run in runs:
        key = division_key(run)
        partition, module = try_out(run, dataset, divided.get(key))
        divided[key] = partition
        module = module.to(device, dataset.x.dtype)
        states.append(_start(id, run, module, partition, gathering))
    samples = BlockSamples(gathering.joined(), Samples(dataset.test_x, dataset.test_y))
    return samples, module, states


def _start(
    id: str, run: HorizontalRun, module: nn.Module, partition: Partition, gathering: _Gathering
) -> RunState:
    """A run before its first round; the samples that it sees join those of the block."""
    layout = Layout.of(module)
    x = layout.flatten(module)
    segment = gathering.seen_by(run, partition)
    offset = gathering.offset(segment)
    cpu = torch.device("cpu")
    train = partition.train.on(cpu, offset)
    attackers: Sequence[int] = ()
    if run.attackers.count:
        attackers = run.attackers.who(run.clients, run.seed)
    if attackers and run.attackers.poisons:
        poisoned = gathering.poison(run, partition, segment, attackers)
        train = train.replaced(poisoned)
    return RunState(
        id=id,
        run=run,
        initial=x,
        train=train,
        test=partition.test.on(cpu, offset),
        sample=torch.from_numpy(partition.server).to(x.device),
        server=run.algorithm.server_init(x, run.clients),
        buffers=layout.copy_buffers(module),
        offset=offset,
        attackers=frozenset(attackers),
    )


def _to(value: Any, device: torch.device) -> Any:
    """Tensors, and those in a dict, on this device; other values as they are."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    return value
