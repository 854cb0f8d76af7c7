"""What a run costs: local steps, memory and seconds, estimated before anything is trained.

The model is shown two samples, and every layer's output is counted. Steps are exact where all
clients take part and do all their work. Seconds are a rule of thumb for one core, good to a factor
of two or so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.rows import columns
from tacit.core.vectors import Layout
from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.federated.client_side import client_class
from tacit.models.model import make_module
from tacit.rounds.memories import BESIDE, IN_MEMORY
from tacit.study.divisions import division_key
from tacit.study.run import Run
from tacit.study.source_keys import source_key, source_keys
from tacit.study.texts import plain

# Of one core of a cloud machine in 2026:
STEP = 4e-4  # seconds that a step takes beside its arithmetic
RATE = 2.5e10  # operations per second

PASSES = 3  # forward passes that a training step costs: a backward pass takes as long as two
ROWS = 6  # vectors per client, at least: w, what was sent, gradient, corrected, next w, message


@dataclass(frozen=True)
class ModelCost:
    """A model on one sample."""

    parameters: int
    activations: int  # numbers that the layers give
    operations: int  # of a forward pass


@dataclass(frozen=True)
class RoundWork:
    """What the clients of a run do in a round, if all of them take part."""

    sizes: list[int]  # each client's training samples
    batch: int  # samples in the largest batch
    steps: int
    samples: int  # that the steps process


@dataclass(frozen=True)
class Entries:
    """How many numbers a method holds."""

    optimiser: int  # per row
    memory: int  # per client
    server: int


@dataclass(frozen=True)
class RunCost:
    """What a run costs."""

    rows: int  # clients that train in a round
    round_steps: int
    steps: int
    row_bytes: int  # per client, while it trains
    held_bytes: int  # of the run, from the first round to the last
    seconds: float
    step_seconds: float  # of one step's arithmetic


class Estimator:
    """Estimates the costs of runs, and remembers what several runs share."""

    def __init__(
        self, datasets: Mapping[str, Dataset], partitions: Mapping[str, Partition]
    ) -> None:
        self.datasets = datasets
        self.partitions = partitions
        self.models: dict[str, ModelCost] = {}
        self.entries: dict[str, Entries] = {}

    def cost(self, run: Run) -> RunCost:
        """What this run costs."""
        data = self.datasets[source_key(run.dataset)]
        model = self._model(run, data)
        entries = self._entries(run, model.parameters)
        work = self._round_work(run)
        rows = len(run.participants(0))
        steps = math.ceil(work.steps * rows / run.clients)

        trained = work.samples * rows / run.clients
        local_tests = sum(work.sizes) * run.local_test
        forward_passes = PASSES * trained + len(data.test_x) + local_tests
        round_seconds = STEP * (steps + 2) + forward_passes * model.operations / RATE

        bytes_each = data.x.element_size()
        return RunCost(
            rows=rows,
            round_steps=steps,
            steps=steps * run.rounds,
            row_bytes=bytes_each * _row_numbers(model, entries, work.batch, data),
            held_bytes=bytes_each * _held_numbers(run, rows, model, entries, data),
            seconds=round_seconds * run.rounds,
            step_seconds=PASSES * work.batch * model.operations / RATE,
        )

    def data_bytes(self, runs: Sequence[Run]) -> int:
        """What the samples of these runs' data sets take, each once."""
        return sum(size_of(self.datasets[key]) for key in source_keys(runs))

    def _model(self, run: Run, data: Dataset) -> ModelCost:
        """The model or, where every client has its own, the widest."""
        model = run.largest_model
        key = str(plain([model, run.dataset]))
        if key not in self.models:
            module = make_module(model, data.x.shape[1:], data.outputs, run.seed)
            self.models[key] = measure_model(module, data)
        return self.models[key]

    def _round_work(self, run: Run) -> RoundWork:
        partition = self.partitions[division_key(run)]
        sizes = [len(samples) for samples in partition.train]
        largest = 0
        steps = 0
        samples = 0
        for client, size in enumerate(sizes):
            batch = min(run.batch_size_of(client) or size, size)
            epochs = run.epochs_of(client)
            largest = max(largest, batch)
            used = run.sampling.used(size, batch or None)
            steps += epochs * math.ceil(used / max(batch, 1))
            samples += epochs * used
        return RoundWork(sizes, largest, steps, samples)

    def _entries(self, run: Run, size: int) -> Entries:
        key = str([type(run.client_algorithm), type(run.optimiser), size, run.clients])
        if key not in self.entries:
            self.entries[key] = _count_entries(run, torch.zeros(size))
        return self.entries[key]


class LayerCounter:
    """A forward hook that adds up what layers give for two samples, and what that takes."""

    def __init__(self) -> None:
        self.activations = 0
        self.operations = 0

    def __call__(self, layer: nn.Module, _inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        self.activations += output.numel() // 2
        weight = getattr(layer, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1:
            # Each output is a sum over a row of the weights: a product and an addition per weight.
            # That is twice the weights, but the output holds two samples, so the twos cancel out.
            self.operations += output.numel() * weight[0].numel()


def measure_model(module: nn.Module, data: Dataset) -> ModelCost:
    """Shows the model two samples, and counts."""
    counter = LayerCounter()
    layers = [layer for layer in module.modules() if not any(layer.children())]
    hooks = [layer.register_forward_hook(counter) for layer in layers]
    number_type = next(module.parameters()).dtype
    with torch.no_grad():
        module.eval()(data.x[:2].to(number_type))
    for hook in hooks:
        hook.remove()
    return ModelCost(Layout.of(module).size, counter.activations, counter.operations)


def size_of(data: Dataset) -> int:
    """Bytes of a data set's tensors."""
    tensors = [value for value in vars(data).values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _row_numbers(model: ModelCost, entries: Entries, batch: int, data: Dataset) -> int:
    """How many numbers a client takes while it trains."""
    vectors = ROWS * model.parameters
    state = 2 * (entries.optimiser + entries.memory)
    samples = batch * (3 * model.activations + data.x[0].numel())
    return vectors + state + samples


def _held_numbers(run: Run, rows: int, model: ModelCost, entries: Entries, data: Dataset) -> int:
    """How many numbers a run takes from its first round to its last."""
    memories = data.x.element_size() * entries.memory + BESIDE
    in_file = run.clients * memories > IN_MEMORY  # then only those of a round's clients are held
    remembered = rows if in_file else run.clients
    held = model.parameters + entries.server + remembered * entries.memory
    if run.split.noise(run.clients).any():  # noisy features are a copy of the data
        held += len(data.x) * data.x[0].numel()
    return held


def _count_entries(run: Run, x: Tensor) -> Entries:
    algorithm = run.client_algorithm
    row = x[None]
    try:
        optimiser: Any = columns([run.optimiser], type(run.optimiser), x)
        view: Any = columns([algorithm], client_class(type(algorithm)), x)
        return Entries(
            optimiser=_count_numbers(optimiser.init(row)),
            memory=_count_numbers(view.client_init(row)),
            server=_count_numbers(algorithm.server_init(x, run.clients)),
        )
    except Exception:  # from the user's own hooks; it is reported when they are played
        return Entries(optimiser=2 * len(x), memory=len(x), server=len(x))


def _count_numbers(entries: Mapping[str, Any]) -> int:
    return sum(value.numel() for value in entries.values() if isinstance(value, Tensor))
