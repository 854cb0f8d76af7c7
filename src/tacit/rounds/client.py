"""The clients' side of a round: local work on rows, and the models that clients keep for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns, join, pick, replaced
from tacit.core.seeds import generator, numpy_generator
from tacit.core.vectors import pack
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.models.model import make_module
from tacit.rounds.state import RunState, broadcast, client_view, memory_of
from tacit.study.run import Run
from tacit.training.batches import Packed, Plan, Samples, gather, pack_epochs, plan_epochs
from tacit.training.gradients import GradientFunction
from tacit.training.trainer import Block, Work, train

if TYPE_CHECKING:
    from tacit.simulation.simulation import Simulation

Job = tuple[RunState, int]  # a run's client
Passes = tuple[Tensor, int, int | None, torch.Generator]  # samples, epochs, batch size and their order
FULL = 512  # samples of a full gradient that are taken at a time on a GPU


@dataclass(frozen=True)
class Reply:
    """What a client gives back after its local work; every tensor has one row."""

    client: int
    message: Rows
    memory: Rows
    samples: Tensor
    steps: Tensor
    loss: Tensor
    hits: Tensor  # the share of hits, or the mean squared error
    figures: tuple[int, float, float] = (0, 0.0, 0.0)  # steps, loss and hits as numbers


def chosen_for(run: Run, turn: int) -> list[int]:
    """The clients of a round, the first of which is 0."""
    return run.participants(turn)


def choose(state: RunState) -> tuple[list[int], list[int]]:
    """The clients of this round, and those of them whose replies will not be lost."""
    run, turn = state.run, state.round
    chosen = chosen_for(run, turn)
    if not run.dropout:
        return chosen, chosen
    lost = {k for k in chosen if numpy_generator(run.seed, "dropout", k, turn).random() < run.dropout}
    return chosen, [k for k in chosen if k not in lost]


@dataclass(frozen=True)
class Started:
    """Local work on its way: on a GPU it may still be going on."""

    jobs: Sequence[Job]
    view: Algorithm
    done: Block
    steps: list[int]


def work(simulation: Simulation, jobs: Sequence[Job]) -> list[Reply | None]:
    """The local work of these clients; one without a step gives no reply."""
    return replies_of(start(simulation, jobs))


def start(simulation: Simulation, jobs: Sequence[Job], gradient: GradientFunction | None = None) -> Started:
    """Sets these clients to work; with a gradient function of its own, beside other clients."""
    states = [state for state, _ in jobs]
    sent = join([broadcast(state, client) for state, client in jobs])
    mine = join([memory_of(state, client) for state, client in jobs])
    view = client_view(states, sent["x"])
    w, mine, begun = view.begin(sent, mine)
    if any(state.run.initial == "different" and not state.round for state in states):
        w = join([_start(simulation, job, w[k : k + 1]) for k, job in enumerate(jobs)])
    buffers = join([pick(state.buffers, None) for state in states])
    own = gradient or simulation.gradient
    with nullcontext() if gradient else simulation.seeded(states[0], "training", jobs[0][1]):
        full = _full_gradients(simulation, jobs, sent["x"], buffers, own) if view.needs_full_gradient else None
        task = _work_of(jobs, w, begun, full)
        block = Block(w, task, view, sent, mine, buffers, *[torch.zeros_like(task.steps)] * 3)
        samples = simulation.pool.train
        if simulation.trainer:
            packed = [simulation.plans.take(state, client) for state, client in jobs]
            return Started(jobs, view, simulation.trainer.train(block, packed), [len(plan) for plan in packed])
        plans = [plan_of(job, simulation.device) for job in jobs]
        done = train(block, plans, samples.x, samples.y, own)
    return Started(jobs, view, done, [len(plan) for plan in plans])


def personal_model(simulation: Simulation, state: RunState, client: int) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers: fine-tuned on its own data if the study says so."""
    sent = broadcast(state, client)
    row = client_view([state], sent["x"]).personal(sent, memory_of(state, client))
    epochs = state.run.fine_tuning
    if not epochs:
        return row[0], state.buffers
    order = generator(state.run.seed, "fine-tuning", client, state.round)
    passes = (state.train[client], epochs, state.run.batch_size_of(client), order)
    return fit(simulation, state, row, passes, simulation.pool.train, f"fine-tuning {client}")


def fit(
    simulation: Simulation, state: RunState, row: Tensor, passes: Passes, data: Samples, name: str
) -> tuple[Tensor, Rows]:
    """Plain training of one row, without the method's correction: fine-tuning, pre-training, distillation."""
    view: Any = columns([FedAvg()], Algorithm, row)
    buffers = pick(state.buffers, None)
    with simulation.seeded(state, name, 0):
        task = _work_of([(state, 0)], row, None)
        block = Block(row, task, view, {"x": row}, {}, buffers, *[torch.zeros_like(task.steps)] * 3)
        if simulation.trainer and data is simulation.trainer.samples:
            done = simulation.trainer.train(block, [pack_epochs(*passes)])
        else:
            plan = plan_epochs(passes[0].to(data.x.device), *passes[1:])
            done = train(block, [plan], data.x, data.y, simulation.gradient)
    return done.w[0], {name: value[0] for name, value in done.buffers.items()}


def _work_of(jobs: Sequence[Job], w: Tensor, begun: Rows | None, full: Tensor | None = None) -> Work:
    """The work before its first step."""
    states = [state for state, _ in jobs]
    optimiser: Any = columns([state.run.optimiser for state in states], type(states[0].run.optimiser), w)
    factors = [[state.run.schedule.factor_at(state.round)] for state in states]
    optimiser = replaced(optimiser, lr=optimiser.lr * w.new_tensor(factors))
    samples = w.new_tensor([[len(state.train[client])] for state, client in jobs])
    epochs = w.new_tensor([[state.run.epochs_of(client)] for state, client in jobs])
    start = optimiser.init(w) if begun is None else begun
    return Work(torch.zeros_like(samples), optimiser.lr, samples, optimiser, start, full, epochs)


def replies_of(started: Started) -> list[Reply | None]:
    """What comes back, once the work is done."""
    jobs, view, done = started.jobs, started.view, started.done
    message, memory = view.finish(done.w, done.sent, done.mine, done.work)
    if taken := {"buffers", "counters"} & message.keys():
        raise StudyError(f"a message has no entry {taken.pop()!r} of its own: that name is the model's buffers'")
    loss, hits = done.loss / done.seen, done.hits / done.seen
    steps, samples = done.work.steps, done.work.samples
    together = Reply(-1, {**message, **pack(done.buffers)}, memory, samples, steps, loss, hits)
    figures = torch.cat([loss, hits], 1).tolist()
    alone = [pick(together, slice(k, k + 1)) for k in range(len(jobs))] if len(jobs) > 1 else [together]
    named = zip(alone, jobs, started.steps, figures, strict=True)
    return [
        replace(reply, client=client, figures=(count, *figure)) if count else None
        for reply, (_, client), count, figure in named
    ]


def plan_of(job: Job, device: torch.device | None = None) -> Plan:
    """The client's batches of this round."""
    state, client = job
    passes = passes_of(state, client, state.round)
    plan = plan_epochs(passes[0] if device is None else passes[0].to(device), *passes[1:])
    return plan[: state.run.behaviour.steps(len(plan), state.run.seed, client, state.round)]


def passes_of(state: RunState, client: int, turn: int) -> Passes:
    """What the client goes through in a round, the first of which is 0."""
    run, order = state.run, generator(state.run.seed, "batches", client, turn)
    return state.train[client], run.epochs_of(client), run.batch_size_of(client), order


class PlansAhead:
    """Packed plans, made while the GPU is busy with the round before."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int, int], Packed] = {}

    def take(self, state: RunState, client: int) -> Packed:
        """The client's batches of this round."""
        return self.made.pop((state.id, client, state.round), None) or self._make(state, client, state.round)

    def prepare(self, states: Sequence[RunState]) -> None:
        """The plans of the round after this one."""
        self.made = {
            (state.id, client, state.round + 1): self._make(state, client, state.round + 1)
            for state in states
            if state.round + 1 < state.run.rounds
            for client in chosen_for(state.run, state.round + 1)
        }

    def _make(self, state: RunState, client: int, turn: int) -> Packed:
        plan = pack_epochs(*passes_of(state, client, turn))
        return plan.first(state.run.behaviour.steps(len(plan), state.run.seed, client, turn))


def _start(simulation: Simulation, job: Job, w: Tensor) -> Tensor:
    """Where the client begins: at its own random weights in the first round, if the study wants different ones."""
    state, client = job
    if state.run.initial != "different" or state.round > 0:
        return w
    module = make_module(state.run.model, simulation.shape, simulation.width, state.run.seed, "client", client)
    return simulation.layout.flatten(module).to(w)[None]


def _full_gradients(
    simulation: Simulation, jobs: Sequence[Job], x: Tensor, buffers: Rows, gradient: GradientFunction
) -> Tensor:
    samples, parts = simulation.pool.train, [state.train[client] for state, client in jobs]
    if simulation.trainer is None:
        return gradient(x, buffers, gather(samples.x, samples.y, [part.to(x.device) for part in parts])).g
    total = torch.zeros_like(x)
    counts = x.new_tensor([[max(len(part), 1)] for part in parts])
    for first in range(0, max(map(len, parts)), FULL):  # the mean over all samples is the mean of parts, weighted
        some = [part[first : first + FULL] for part in parts]
        sizes = x.new_tensor([[len(part)] for part in some])
        total += gradient(x, buffers, samples.batch(some)).g * (sizes / counts)
    return total
