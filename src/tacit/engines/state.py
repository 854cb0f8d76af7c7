"""A run on its way: what the server knows, what each client remembers, and which samples are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.rows import Rows, columns
from tacit.core.vectors import Layout
from tacit.data.datasets import Dataset
from tacit.data.partition import Partition, add_noise, divide
from tacit.engines.study import Run
from tacit.federated.algorithm import Algorithm, Server
from tacit.models.model import make_module

CLIENT_HOOKS = ("client_init", "begin", "correct", "finish", "personal", "needs_full_gradient")
SAVED = ("server", "buffers", "memory", "round", "status", "best", "stale")


@dataclass(eq=False)
class RunState:
    """One run. Only the engine changes it, and only between rounds."""

    id: str
    run: Run
    initial: Tensor  # (P,), before the first round
    train: list[Tensor]  # each client's samples, as indices into the pool
    test: list[Tensor]
    sample: Tensor  # the server's own
    server: Server
    buffers: Rows
    memory: dict[int, Rows] = field(default_factory=dict)  # one-row tensors, of the clients that have any
    round: int = 0
    status: str = "running"  # then finished | target | patience | diverged
    best: float = -1.0
    stale: int = 0  # rounds since the best one
    seconds: float = 0.0  # of the current round

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps; the rest follows from the run."""
        return {name: getattr(self, name) for name in SAVED}

    def restore(self, saved: Mapping[str, Any]) -> None:
        device = self.initial.device
        for name in SAVED:
            setattr(self, name, _to(saved[name], device))


@dataclass(frozen=True)
class Pool:
    """The samples of all runs of a group: the data set, and a copy for each kind of noise on its features."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def prepare(
    runs: Sequence[tuple[str, Run]], dataset: Dataset, device: torch.device
) -> tuple[Pool, nn.Module, list[RunState]]:
    """The states of a group's runs, over one pool of samples; the module serves as a mould."""
    features, states = [dataset.x], []
    for id, run in runs:
        partition, module = try_out(run, dataset)
        noisy = add_noise(dataset.x, partition, run.seed)
        offset = 0
        if noisy is not dataset.x:
            offset = len(features) * len(dataset.x)
            features.append(noisy)
        parts = [
            [torch.from_numpy(part + offset).to(device) for part in side] for side in (partition.train, partition.test)
        ]
        sample = torch.from_numpy(partition.server).to(device)
        states.append(_start(id, run, module.to(device, dataset.x.dtype), (parts[0], parts[1], sample)))
    x = torch.cat(features) if len(features) > 1 else dataset.x
    pool = Pool(x, dataset.y.repeat(len(features)), dataset.test_x, dataset.test_y)
    return Pool(*(part.to(device) for part in vars(pool).values())), module, states


def try_out(run: Run, dataset: Dataset) -> tuple[Partition, nn.Module]:
    """The run's division of the data and its untrained model, or the reason why there can be none."""
    aside: Any = {"server_samples": run.server_samples, "local_test": run.local_test}
    partition = divide(dataset.y.numpy(), run.split, run.clients, run.seed, **aside)
    return partition, make_module(run.model, dataset.x.shape[1:], dataset.classes, run.seed)


def client_class(algorithm: type[Algorithm]) -> type[Algorithm]:
    """The class that the client's side of an algorithm belongs to: methods that differ on the server only share it."""
    owners = [next(cls for cls in algorithm.__mro__ if hook in vars(cls)) for hook in CLIENT_HOOKS]
    return max(owners, key=lambda cls: len(cls.__mro__))


def client_view(states: Sequence[RunState], like: Tensor) -> Algorithm:
    """The client's side of these runs' algorithms, one row each, with columns for float fields."""
    algorithms = [state.run.algorithm for state in states]
    return columns(algorithms, client_class(type(algorithms[0])), like)


def memory_of(state: RunState, client: int) -> Rows:
    """The client's memory, as it was after its last accepted reply, or new."""
    if client not in state.memory:
        x = state.initial[None]
        return client_view([state], x).client_init(x)
    return state.memory[client]


def broadcast(state: RunState) -> Rows:
    """What the server sends, as one row."""
    x = state.server["x"]
    sent = {name: torch.as_tensor(state.server[name], dtype=x.dtype) for name in state.run.algorithm.sends}
    return {name: value.reshape(1, -1) for name, value in sent.items()}


def _start(id: str, run: Run, module: nn.Module, samples: tuple[list[Tensor], list[Tensor], Tensor]) -> RunState:
    layout = Layout.of(module)
    x = layout.flatten(module)
    server = run.algorithm.server_init(x, run.clients)
    return RunState(id, run, x, *samples, server=server, buffers=layout.copy_buffers(module))


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
