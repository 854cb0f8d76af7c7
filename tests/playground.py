"""What several tests share: small problems with known answers, played by the real loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.events import Event, RoundFinished
from tacit.core.fields import field_types
from tacit.core.registry import Registered
from tacit.core.rows import columns
from tacit.data.datasets import Dataset
from tacit.federated.algorithm import Algorithm
from tacit.federated.client_side import client_class
from tacit.federated.cohort import Cohort
from tacit.federated.combine.combiner import Combiner
from tacit.rounds.client import finish
from tacit.rounds.participant import Draft
from tacit.simulation.kinds.horizontal import Simulation
from tacit.simulation.state import RunState
from tacit.study.study import Study
from tacit.training.batches import Batch, ListedBatches, Samples
from tacit.training.gradients import Gradients
from tacit.training.optimisers import SGD, Optimiser
from tacit.training.row_trainer import RowTrainer

SMALL = """
dataset: iris
model: linear
clients: 3
rounds: 2
algorithm: [fedavg, fedprox]
optimiser: {name: sgd, lr: 0.1}
"""
COMPARED: dict[str, Any] = {  # what a report can compare: methods, splits, seeds and a reference
    "dataset": "iris",
    "model": "linear",
    "clients": 3,
    "rounds": 4,
    "split": ["iid", "label_dirichlet"],
    "algorithm": ["fedavg", {"name": "fedprox", "mu": 0.1}, "fedsgd"],
    "optimiser": {"name": "sgd", "lr": 0.1},
    "seed": [0, 1],
    "centralised": True,
}
FUSED: dict[str, Any] = {  # clients whose networks become one
    "dataset": "iris",
    "model": {"name": "mlp", "hidden": [6]},
    "clients": 3,
    "fusion": ["pfnm", "spahm"],
    "initial": "different",
    "split": ["iid", "label_dirichlet"],
    "rounds": 1,
    "local_epochs": 3,
    "optimiser": {"name": "adam", "lr": 0.02},
    "seed": [0, 1],
}
FAST = {
    "dataset": "iris",
    "model": "linear",
    "optimiser": {"name": "sgd", "lr": 0.1},
    "clients": 3,
    "rounds": 2,
}


@dataclass(frozen=True)
class Quadratic:
    """Client k minimises (w - e_k)' H_k (w - e_k) / 2. The label of a sample says whose it is."""

    centres: Tensor  # (N, P)
    hessians: Tensor | None = None  # (N, P, P); the identity if left out

    def __call__(
        self, w: Tensor, buffers: dict[str, Tensor], batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        who = batch.y[:, 0]
        gap = w - self.centres[who]
        g = gap
        if self.hessians is not None:
            g = torch.einsum("kpq,kq->kp", self.hessians[who], gap)
        loss = (gap * g).sum(1, keepdim=True) / 2
        return Gradients(g, loss, torch.zeros_like(loss), buffers)


def an_optimiser_for(algorithm: Algorithm, lr: float = 0.1) -> Optimiser:
    """Plain SGD, or the first optimiser that the method accepts."""
    for cls in [SGD, *Optimiser.known().values()]:
        try:
            algorithm.check(cls(lr=lr))
        except StudyError:
            continue
        return cls(lr=lr)
    raise AssertionError(f"{algorithm} accepts no optimiser")


def play(
    algorithm: Algorithm,
    problem: Quadratic,
    *,
    steps: Sequence[int],
    samples: Sequence[int],
    rounds: int,
    optimiser: Optimiser | None = None,
    start: Tensor | None = None,
) -> list[dict[str, Any]]:
    """Full-participation rounds on a quadratic.

    Returns the server's state before the first round and after each.
    """
    count, size = problem.centres.shape
    x = torch.zeros(size, dtype=problem.centres.dtype) if start is None else start
    optimiser = optimiser or an_optimiser_for(algorithm)
    view: Any = columns([algorithm] * count, client_class(type(algorithm)), x[None])
    rule: Any = columns([optimiser] * count, type(optimiser), x[None])
    server = algorithm.server_init(x, count)
    mine = view.client_init(x.expand(count, size))
    states = [server]
    who = torch.arange(count)
    trainer = RowTrainer(None, Samples(who, who), gradient=problem)
    shards = who.split(1)
    local_steps = [1] * count if algorithm.local_work else steps
    batches = []
    for shard, times in zip(shards, local_steps, strict=True):
        batches.append(ListedBatches([shard] * times))
    for _ in range(rounds):
        sent = sent_rows(algorithm, server, count)
        w, mine, begun = view.begin(sent, mine)
        done = trainer.train(
            w,
            batches,
            optimiser=rule,
            rule=view,
            start=begun,
            sent=sent,
            mine=mine,
            samples=torch.tensor(samples, dtype=x.dtype)[:, None],
            epochs=torch.tensor(steps, dtype=x.dtype)[:, None],
            full_of=shards,
            seeds=range(count),
        )
        message, mine = view.finish(done.w, sent, mine, done.work)
        cohort = a_cohort(message, samples, done.work.steps, algorithm)
        server = algorithm.aggregate(server, cohort)
        states.append({**server, "mine": mine})
    return states


def sent_rows(algorithm: Algorithm, server: Any, count: int) -> dict[str, Tensor]:
    """What the server sends, one row per client."""
    messages = [algorithm.send(server, client) for client in range(count)]
    rows = {}
    for name in messages[0]:
        tensors = [torch.as_tensor(message[name]).to(server["x"]) for message in messages]
        rows[name] = torch.stack([tensor.reshape(-1) for tensor in tensors])
    return rows


def a_cohort(
    message: dict[str, Tensor], samples: Sequence[float], steps: Tensor, algorithm: Algorithm
) -> Cohort:
    """A cohort of all clients, averaged."""
    n = torch.tensor(samples, dtype=steps.dtype)[:, None]
    return Cohort(
        messages=message,
        ids=tuple(range(len(n))),
        samples=n,
        steps=steps,
        population=len(n),
        everyone=float(n.sum()),
        combiner=Combiner.build("mean"),
        weighting=algorithm.weights,
        client_losses=torch.zeros_like(n),
        needs_rows=algorithm.needs_rows,
    )


def varied(item: Registered, factor: float) -> Any:
    """The object with every float field multiplied, so that two of them differ in every column."""
    values = {}
    for name, annotation in field_types(type(item)).items():
        if annotation is float:
            values[name] = getattr(item, name) * factor
    return replace(item, **values)  # type: ignore[type-var]


def tiny_dataset(
    samples: int = 60, classes: int = 3, dtype: torch.dtype = torch.float64
) -> Dataset:
    """Three separable clouds, in double precision."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(samples) % classes
    x = torch.randn(samples, 5, generator=draw, dtype=dtype) + 2 * torch.nn.functional.one_hot(y, 5)
    return Dataset("tiny", x, y, x[:12].clone(), y[:12].clone(), tuple("abc"[:classes]))


def simulate(
    data: Dataset | None = None, *, form: Any = None, at_once: int | None = None, **settings: Any
) -> Simulation:
    """Plays a small study to its end, all its runs in one batch, and returns the engine."""
    study = Study("small", **{**FAST, **settings})
    named = [(f"run{k}", run) for k, run in enumerate(study.runs())]
    simulation = Simulation(named, data or named[0][1].dataset.load(), form=form, at_once=at_once)
    simulation.records = []  # type: ignore[attr-defined]
    while simulation.going:
        simulation.records += [record for record, _ in simulation.play_round()]  # type: ignore[attr-defined]
    return simulation


def draft_of(simulation: Simulation, state: RunState, client: int) -> Draft:
    """What a client would send in the run's present round, without a word to the server."""
    (draft,) = finish(simulation._start_chunk(simulation.trainer, [(state, client)]))
    assert draft is not None
    return draft


class StopAfter:
    """Raises in the middle of a study, as Ctrl-C does."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def everything(folder: Path) -> dict[str, Any]:
    """What a study has left: its history and its models."""
    models = {}
    for path in sorted((folder / "models").glob("*.pt")):
        models[path.name] = torch.load(path, weights_only=True)
    return {"history": (folder / "history.jsonl").read_bytes(), "models": models}


def assert_same(folder: Path, expected_folder: Path) -> None:
    """Two studies have left the same, to the bit."""
    actual = everything(folder)
    expected = everything(expected_folder)
    assert actual["history"] == expected["history"]
    assert actual["models"].keys() == expected["models"].keys()
    torch.testing.assert_close(actual["models"], expected["models"], rtol=0, atol=0)
