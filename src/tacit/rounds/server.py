"""The server's side of a round: what arrives, what is made of it, and what is learnt from public data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, join, pick
from tacit.core.seeds import derive, generator
from tacit.core.vectors import pack, unpack
from tacit.federated.algorithm import Server
from tacit.federated.cohort import Cohort, in_order
from tacit.federated.wire.stage import BUFFERS, rows_of
from tacit.rounds.client import Passes, Reply, fit
from tacit.rounds.inbox import stacked
from tacit.simulation.metrics import losses_of_updates
from tacit.simulation.state import RunState, client_view, memory_of
from tacit.training.batches import Samples

if TYPE_CHECKING:
    from tacit.simulation.kinds.horizontal import Simulation


def aggregate(simulation: Simulation, state: RunState, replies: list[Reply], missing: list[int]) -> bool:
    """Commits the server's next state and the memories of those who replied; False if it is not finite."""
    algorithm, wire_memory = state.run.algorithm, dict[int, Rows]()
    replies = sorted(replies, key=lambda reply: reply.client)
    cohort = _cohort(simulation, state, replies, missing, wire_memory)
    server = algorithm.aggregate(state.server, cohort)
    if not isinstance(server, Mapping) or getattr(server.get("x"), "shape", None) != state.initial.shape:
        size = simulation.layout.size
        raise StudyError(f"{algorithm.name}.aggregate must return the server's state, with x of {size}")
    packed = {name: rows for name, rows in cohort.messages.items() if name in BUFFERS}
    entries = {name: cohort.mean(name) if name == "buffers" else rows[0] for name, rows in packed.items()}
    buffers = unpack(entries, state.buffers)
    parts = [part for part in [*server.values(), *buffers.values()] if isinstance(part, Tensor)]
    if not all(bool(torch.isfinite(part).all()) for part in parts):
        return False
    before, state.server, state.buffers = state.server, server, buffers
    if state.run.distillation:
        distil(simulation, state, before["x"], cohort)
    state.server = projected(state.server, state.run.radius)
    kept = {reply.client: _settled(state, reply, cohort, wire_memory) for reply in replies if reply.memory}
    state.remember(kept, wire_memory)
    return True


def _settled(state: RunState, reply: Reply, cohort: Cohort, wire_memory: dict[int, Rows]) -> Rows:
    """The client's next memory. Where the wire rounds, it goes by what the server got, and will still get."""
    if not state.run.wire or reply.client in state.attackers:
        return reply.memory
    place = cohort.ids.index(reply.client)
    old, new = (known.get(reply.client, {}) for known in (state.wire_memory, wire_memory))
    arrived = {}
    for name in rows_of(reply.message):
        stages = [f"{k} {name}" for k in range(len(state.run.wire)) if f"{k} {name}" in new]
        owed = [new[key] - old.get(key, 0) for key in stages]
        arrived[name] = cohort.messages[name][place : place + 1] + sum(owed)
    view = client_view([state], reply.samples)
    return view.settle(memory_of(state, reply.client), reply.memory, arrived)


def pretrain(simulation: Simulation, state: RunState) -> None:
    """Trains the initial model on the public data, before the first round."""
    data = _public(simulation, state)
    passes = _passes(state, len(data.y), state.run.pretraining, "pre-training")
    state.initial, state.buffers = fit(simulation, state, state.initial[None], passes, data, "pre-training")
    state.server = state.run.algorithm.server_init(state.initial, state.run.clients)


def distil(simulation: Simulation, state: RunState, x: Tensor, cohort: Cohort) -> None:
    """Draws the new global model towards the clients' mean prediction on the public data, which needs no labels.

    Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, 2020, algorithm 1.
    """
    inputs = _public(simulation, state).x
    teachers = torch.zeros(len(inputs), simulation.width, dtype=x.dtype, device=x.device)
    for k, dx in enumerate(cohort.messages["dx"]):  # one model at a time
        entries = {name: cohort.messages[name][k] for name in BUFFERS if name in cohort.messages}
        simulation.layout.load(simulation.module, x + dx, unpack(entries, state.buffers))
        teachers += simulation.outputs(inputs) / len(cohort.ids)
    passes = _passes(state, len(inputs), state.run.distillation, "distillation")
    data = Samples(inputs, teachers[:, 0] if simulation.score.name == "r2" else teachers.softmax(1))
    row, state.buffers = fit(simulation, state, state.server["x"][None], passes, data, "distillation")
    state.server = {**state.server, "x": row}


def _cohort(
    simulation: Simulation, state: RunState, replies: list[Reply], missing: list[int], wire_memory: dict[int, Rows]
) -> Cohort:
    ids = [reply.client for reply in replies]
    messages = {name: stacked([reply.message[name] for reply in replies]) for name in replies[0].message}
    messages = _with_lies(state, messages, ids)
    messages = _transmit(state, messages, ids, wire_memory)
    columns = [join([getattr(reply, name) for reply in replies]) for name in ("samples", "steps", "loss")]
    if state.run.missing == "zero" and missing:
        messages, columns = _with_nothing(state, messages, columns, missing)
        ids += missing
    messages, ids_, (samples, steps, loss) = in_order(messages, ids, *columns)
    return Cohort(
        messages=messages,
        ids=ids_,
        samples=samples,
        steps=steps,
        population=state.run.clients,
        everyone=float(state.train.samples),
        combiner=state.run.combiner,
        weighting=state.run.algorithm.weights,
        client_losses=loss,
        server_loss=losses_of_updates(simulation, state) if len(state.sample) else None,
        needs_rows=state.run.algorithm.needs_rows,
    )


def _with_nothing(
    state: RunState, messages: Rows, columns: list[Tensor], missing: Sequence[int]
) -> tuple[Rows, list[Tensor]]:
    """The messages, samples, steps and losses, with rows for clients that did not reply: they change nothing.

    Their updates are zero, their buffers the server's; a column, such as FedNova's a, is the mean of those who replied.
    """
    count, buffers = len(missing), pack(pick(state.buffers, None))
    p = columns[0] if state.run.algorithm.weights == "samples" else torch.ones_like(columns[0])
    rows = {}
    for name, x in messages.items():
        mean = (p / p.sum()).T @ x if x.is_floating_point() else x[:1]
        quiet = buffers[name] if name in BUFFERS else mean if x.shape[1] == 1 else torch.zeros_like(x[:1])
        rows[name] = torch.cat([x, quiet.expand(count, -1)])
    held = columns[0].new_tensor([[len(state.train[client])] for client in missing])
    none = [held, torch.zeros_like(held), columns[2].mean(0, keepdim=True).expand(count, 1)]
    return rows, [torch.cat(pair) for pair in zip(columns, none, strict=True)]


def _with_lies(state: RunState, messages: Rows, ids: Sequence[int]) -> Rows:
    """The messages with what attackers send in place of theirs."""
    lying = torch.tensor([client in state.attackers for client in ids])
    if not lying.any():
        return messages
    changed = {}
    for name, rows in rows_of(messages).items():
        draw = generator(state.run.seed, "attack", name, state.round)
        changed[name] = rows.clone()
        changed[name][lying] = state.run.attackers.lie(rows[lying], rows[~lying], draw)
    return {**messages, **changed}


def _transmit(state: RunState, messages: Rows, ids: Sequence[int], memory: dict[int, Rows]) -> Rows:
    """The messages after the wire; `memory` gets these clients' next ones."""
    own = {name: rows for name, rows in messages.items() if name not in BUFFERS}
    kept: dict[int, Rows] = {client: {} for client in ids}
    known = {client: state.wire_memory.get(client, {}) for client in ids} if state.run.wire else {}
    for place, stage in enumerate(state.run.wire):
        fresh = [stage.init({name: rows[k : k + 1] for name, rows in own.items()}) for k in range(len(ids))]
        old = join(
            [
                {name: known[client].get(f"{place} {name}", rows) for name, rows in fresh[k].items()}
                for k, client in enumerate(ids)
            ]
        )
        seeds = [derive(state.run.seed, "wire", place, client, state.round) for client in ids]
        own, new = stage.client(own, old, seeds)
        for k, client in enumerate(ids):
            kept[client] |= {f"{place} {name}": rows[k : k + 1].clone() for name, rows in new.items()}
    memory.update({client: rows for client, rows in kept.items() if rows})
    return {**messages, **own}


def projected(server: Server, radius: float | None) -> Server:
    """The server's state with x in the ball: the nearest point of it to x."""
    if radius is None:
        return server
    return {**server, "x": server["x"] * min(1.0, radius / max(float(server["x"].norm()), 1e-30))}


def _public(simulation: Simulation, state: RunState) -> Samples:
    if simulation.public is not None:
        return simulation.public
    samples = simulation.pool.train
    return Samples(samples.features(state.sample), samples.y[state.sample])


def _passes(state: RunState, samples: int, epochs: int, name: str) -> Passes:
    order = torch.Generator().manual_seed(derive(state.run.seed, name, state.round))
    return torch.arange(samples, device=state.initial.device), epochs, state.run.batch_size_of(0), order
