"""What a run costs: local steps, memory and seconds, told from its model and its data before anything is trained.

The model is shown two samples, and every layer's output is counted. Steps are exact where all clients take part and
do all their work; seconds are a rule of thumb for one core, good to a factor of two or so.
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
from tacit.study.portrait import division_key
from tacit.study.run import Run
from tacit.study.texts import plain

STEP, RATE = (
    4e-4,
    2.5e10,
)  # a step's own seconds, and operations per second, of a core of a cloud machine in 2026
ROWS = 6  # of P numbers, at least, that a row takes: w, what was sent, gradient, corrected gradient, next w, message


@dataclass(frozen=True)
class ModelCost:
    """A model on one sample."""

    parameters: int
    activations: int  # numbers that the layers give
    operations: int  # of a forward pass


@dataclass(frozen=True)
class RunCost:
    """A run; bytes are of `row`, while a client trains, and of `held`, from the first round to the last."""

    rows: int  # clients that train in a round
    round_steps: int
    steps: int
    row: int
    held: int
    seconds: float
    step: float  # seconds of one step's arithmetic


class Estimator:
    """Remembers what runs have in common."""

    def __init__(
        self, datasets: Mapping[str, Dataset], partitions: Mapping[str, Partition]
    ) -> None:
        self.datasets, self.partitions = datasets, partitions
        self.models: dict[str, ModelCost] = {}
        self.entries: dict[str, tuple[int, int, int]] = {}

    def cost(self, run: Run) -> RunCost:
        """What this run costs."""
        data = self.datasets[str(plain(run.dataset))]
        model, sizes = self._model(run, data), self._sizes(run)
        rows = len(run.participants(0))
        batches = [min(run.batch_size_of(k) or size, size) for k, size in enumerate(sizes)]
        work = [
            run.epochs_of(k) * math.ceil(size / max(batches[k], 1)) for k, size in enumerate(sizes)
        ]
        steps = math.ceil(sum(work) * rows / run.clients)
        optimiser, memory, server = self._entries(run, model.parameters)
        number, sample, batch = data.x.element_size(), data.x[0].numel(), max(batches)
        row = (
            ROWS * model.parameters
            + 2 * (optimiser + memory)
            + batch * (3 * model.activations + sample)
        )
        in_file = (
            run.clients * (number * memory + BESIDE) > IN_MEMORY
        )  # then those of the cohort alone are held
        held = model.parameters + server + (rows if in_file else run.clients) * memory
        held += len(data.x) * sample if run.split.noise(run.clients).any() else 0
        samples = sum(run.epochs_of(k) * size for k, size in enumerate(sizes)) * rows / run.clients
        passes = (
            3 * samples + len(data.test_x) + sum(sizes) * run.local_test
        )  # backward is two forward passes
        seconds = STEP * (steps + 2) + passes * model.operations / RATE
        step = 3 * batch * model.operations / RATE
        return RunCost(
            rows, steps, steps * run.rounds, number * row, number * held, seconds * run.rounds, step
        )

    def data_bytes(self, runs: Sequence[Run]) -> int:
        """What the samples of these runs' data sets take, each once."""
        keys = {
            str(plain(source))
            for run in runs
            for source in (run.dataset, run.public)
            if source is not None
        }
        return sum(size_of(self.datasets[key]) for key in keys)

    def _model(self, run: Run, data: Dataset) -> ModelCost:
        """The model or, where every client has its own, the widest."""
        model = run.largest_model
        key = str(plain([model, run.dataset]))
        if key not in self.models:
            self.models[key] = measure_model(
                make_module(model, data.x.shape[1:], data.outputs, run.seed), data
            )
        return self.models[key]

    def _sizes(self, run: Run) -> list[int]:
        """Each client's training samples."""
        return [len(samples) for samples in self.partitions[division_key(run)].train]

    def _entries(self, run: Run, size: int) -> tuple[int, int, int]:
        """How many numbers a row's optimiser, a client's memory and the server hold."""
        key = str([type(run.client_algorithm), type(run.optimiser), size, run.clients])
        if key not in self.entries:
            self.entries[key] = _count_entries(run, torch.zeros(size))
        return self.entries[key]


def measure_model(module: nn.Module, data: Dataset) -> ModelCost:
    """Shows the model two samples, and counts."""
    found = [0, 0]

    def count(layer: nn.Module, _given: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            weight = getattr(layer, "weight", None)
            found[0] += output.numel() // 2
            if (
                isinstance(weight, Tensor) and weight.dim() > 1
            ):  # each output is a sum over a row of the weights
                found[1] += (
                    output.numel() * weight[0].numel()
                )  # a product and a sum, of two samples

    hooks = [
        part.register_forward_hook(count) for part in module.modules() if not any(part.children())
    ]
    with torch.no_grad():
        module.eval()(data.x[:2].to(next(module.parameters()).dtype))
    for hook in hooks:
        hook.remove()
    return ModelCost(Layout.of(module).size, found[0], found[1])


def size_of(data: Dataset) -> int:
    """Bytes of a data set's tensors."""
    return sum(
        part.numel() * part.element_size()
        for part in vars(data).values()
        if isinstance(part, Tensor)
    )


def _count_entries(run: Run, x: Tensor) -> tuple[int, int, int]:
    try:
        rule: Any = columns([run.optimiser], type(run.optimiser), x)
        algorithm = run.client_algorithm
        view: Any = columns([algorithm], client_class(type(algorithm)), x)
        held = rule.init(x[None]), view.client_init(x[None]), algorithm.server_init(x, run.clients)
        optimiser, memory, server = (
            sum(value.numel() for value in one.values() if isinstance(value, Tensor))
            for one in held
        )
    except Exception:  # of the user's own hooks, which will be told when they are played
        return 2 * len(x), len(x), len(x)
    return optimiser, memory, server
