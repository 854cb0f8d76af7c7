"""The clients' side of a round: local work on rows, and the models that clients keep for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns, join, pick, replaced
from tacit.core.seeds import generator, numpy_generator
from tacit.core.vectors import pack
from tacit.engines.state import RunState, broadcast, client_view, memory_of
from tacit.engines.study import Run
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.models.model import make_module
from tacit.training.batches import Plan, gather, plan_epochs
from tacit.training.trainer import Block, Work, train

if TYPE_CHECKING:
    from tacit.engines.simulation import Simulation

Job = tuple[RunState, int]  # a run's client


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


def chosen_for(run: Run, turn: int) -> list[int]:
    """The clients of a round, the first of which is 0."""
    return run.selection.choose(turn, run.clients, numpy_generator(run.seed, "selection", turn))


def choose(state: RunState) -> tuple[list[int], list[int]]:
    """The clients of this round, and those of them whose replies will not be lost."""
    run, turn = state.run, state.round
    chosen = chosen_for(run, turn)
    if not run.dropout:
        return chosen, chosen
    lost = {k for k in chosen if numpy_generator(run.seed, "dropout", k, turn).random() < run.dropout}
    return chosen, [k for k in chosen if k not in lost]


def work(simulation: Simulation, jobs: Sequence[Job]) -> list[Reply | None]:
    """The local work of these clients; one without a step gives no reply."""
    states = [state for state, _ in jobs]
    sent = join([broadcast(state, client) for state, client in jobs])
    mine = join([memory_of(state, client) for state, client in jobs])
    view = client_view(states, sent["x"])
    w, mine, begun = view.begin(sent, mine)
    w = join([_start(simulation, job, w[k : k + 1]) for k, job in enumerate(jobs)])
    buffers = join([pick(state.buffers, None) for state in states])
    with simulation.seeded(states[0], "training", jobs[0][1]):
        full = _full_gradients(simulation, jobs, sent["x"], buffers) if view.needs_full_gradient else None
        task = _work_of(jobs, w, begun, full)
        block = Block(w, task, view, sent, mine, buffers, *[torch.zeros_like(task.steps)] * 3)
        plans = [plan_of(job) for job in jobs]
        done = train(block, plans, simulation.pool.x, simulation.pool.y, simulation.gradient)
    return _replies(jobs, done, view)


def personal_model(simulation: Simulation, state: RunState, client: int) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers: fine-tuned on its own data if the study says so."""
    sent = broadcast(state, client)
    row = client_view([state], sent["x"]).personal(sent, memory_of(state, client))
    epochs = state.run.fine_tuning
    if not epochs:
        return row[0], state.buffers
    order = generator(state.run.seed, "fine-tuning", client, state.round)
    plan = plan_epochs(state.train[client], epochs, state.run.batch_size_of(client), order)
    data = simulation.pool.x, simulation.pool.y
    return fit(simulation, state, row, plan, data, f"fine-tuning {client}")


def fit(
    simulation: Simulation, state: RunState, row: Tensor, plan: Plan, data: tuple[Tensor, Tensor], name: str
) -> tuple[Tensor, Rows]:
    """Plain training of one row, without the method's correction: fine-tuning, pre-training, distillation."""
    view: Any = columns([FedAvg()], Algorithm, row)
    buffers = pick(state.buffers, None)
    with simulation.seeded(state, name, 0):
        task = _work_of([(state, 0)], row, None)
        block = Block(row, task, view, {"x": row}, {}, buffers, *[torch.zeros_like(task.steps)] * 3)
        done = train(block, [plan], *data, simulation.gradient)
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


def _replies(jobs: Sequence[Job], done: Block, view: Algorithm) -> list[Reply | None]:
    message, memory = view.finish(done.w, done.sent, done.mine, done.work)
    if taken := {"buffers", "counters"} & message.keys():
        raise StudyError(f"a message has no entry {taken.pop()!r} of its own: that name is the model's buffers'")
    loss, hits = done.loss / done.seen, done.hits / done.seen
    steps, samples = done.work.steps, done.work.samples
    together = Reply(-1, {**message, **pack(done.buffers)}, memory, samples, steps, loss, hits)
    alone = [pick(together, slice(k, k + 1)) for k in range(len(jobs))] if len(jobs) > 1 else [together]
    return [
        replace(reply, client=client) if reply.steps else None for reply, (_, client) in zip(alone, jobs, strict=True)
    ]


def plan_of(job: Job) -> Plan:
    """The client's batches of this round."""
    state, client = job
    run, order = state.run, generator(state.run.seed, "batches", client, state.round)
    plan = plan_epochs(state.train[client], run.epochs_of(client), run.batch_size_of(client), order)
    return plan[: run.behaviour.steps(len(plan), run.seed, client, state.round)]


def _start(simulation: Simulation, job: Job, w: Tensor) -> Tensor:
    """Where the client begins: at its own random weights in the first round, if the study wants different ones."""
    state, client = job
    if state.run.initial != "different" or state.round > 0:
        return w
    module = make_module(state.run.model, simulation.shape, simulation.width, state.run.seed, "client", client)
    return simulation.layout.flatten(module).to(w)[None]


def _full_gradients(simulation: Simulation, jobs: Sequence[Job], x: Tensor, buffers: Rows) -> Tensor:
    batch = gather(simulation.pool.x, simulation.pool.y, [state.train[client] for state, client in jobs])
    return simulation.gradient(x, buffers, batch).g
