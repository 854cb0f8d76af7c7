"""A client's half of a round: local work, the message, its way onto the wire, and the memory.

All of it is a function of what a client is given: the run's settings, what the server sent, its
memory, its batches and a row trainer. K simulated clients and one deployed client make the same
call:

    take_part = start -> finish -> transmit

A simulation calls the three apart, so that a GPU can be busy in between, and so that attackers can
lie before the wire. The memory that comes out is kept once the server has accepted the reply; a
reply that is lost changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns, join, pick, replaced
from tacit.core.seeds import derive, generator
from tacit.core.vectors import pack
from tacit.federated.algorithm import Algorithm
from tacit.federated.cohort import RESERVED
from tacit.federated.wire.stage import BUFFERS
from tacit.rounds.participant import (
    ClientOutcome,
    Draft,
    Memory,
    Participant,
    Reply,
    TrainingFigures,
    client_view,
    remembered,
)
from tacit.rounds.transmission import transmit
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Batches
from tacit.training.optimisers import Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Trained, begin_work


@dataclass(frozen=True)
class StartedWork:
    """Local work of some clients. On a GPU it may still be going on."""

    participants: Sequence[Participant]
    view: Algorithm
    trained: Trained
    steps: list[int]


def take_part(
    participants: Sequence[Participant],
    sent: Rows,
    batches: Sequence[Batches],
    trainer: RowTrainer,
    buffers: Rows | None = None,
) -> list[ClientOutcome | None]:
    """A round of these clients, a row each; a client without a step gives no reply."""
    drafts = finish(start(participants, sent, batches, trainer, buffers))
    outcomes: list[ClientOutcome | None] = []
    for participant, draft in zip(participants, drafts, strict=True):
        if draft is None:
            outcomes.append(None)
            continue
        memories = {participant.client: remembered(participant)}
        outcomes += transmit(participant.run, participant.round, [draft], memories.__getitem__)
    return outcomes


def draw_batches(
    run: HorizontalRun, client: int, round: int, shard: Tensor, trainer: RowTrainer
) -> Batches:
    """The samples of each local step of a client in a round; `shard` are its training samples."""
    rng = generator(run.seed, "batches", client, round)
    epochs = run.epochs_of(client)
    batch_size = run.batch_size_of(client)
    batches = trainer.draw_batches(run.sampling, shard, epochs, batch_size, rng)
    steps = run.behaviour.steps(len(batches), run.seed, client, round)
    return batches.first(steps)


def start(
    participants: Sequence[Participant],
    sent: Rows,
    batches: Sequence[Batches],
    trainer: RowTrainer,
    buffers: Rows | None = None,
) -> StartedWork:
    """Sets these clients to work."""
    view = client_view([participant.run.algorithm for participant in participants], sent["x"])
    memory = _method_memories(participants, view)
    w, memory, begun = view.begin(sent, memory)
    turns = [(participant.run, participant.round) for participant in participants]
    shards = [participant.shard for participant in participants]
    samples = [[len(shard)] for shard in shards]
    epochs = [[participant.run.epochs_of(participant.client)] for participant in participants]
    trained = trainer.train(
        _first_parameters(participants, w),
        batches,
        rule=view,
        optimiser=scheduled(turns, w),
        start=begun,
        sent=sent,
        mine=memory,
        buffers=buffers,
        samples=w.new_tensor(samples),
        epochs=w.new_tensor(epochs),
        full_of=shards if view.needs_full_gradient else None,
        seeds=[participant.seed("training") for participant in participants],
    )
    return StartedWork(participants, view, trained, [len(steps) for steps in batches])


def _method_memories(participants: Sequence[Participant], view: Algorithm) -> Rows:
    """What the algorithm remembers of these clients, a row each."""
    view_of_one = None
    if len(participants) == 1:  # the usual case on a CPU: no need to make the view twice
        view_of_one = view
    memories = [remembered(participant, view_of_one).method for participant in participants]
    joined: Rows = join(memories)
    return joined


def _first_parameters(participants: Sequence[Participant], w: Tensor) -> Tensor:
    """The parameters at which local work starts: `w`, or a client's own."""
    if all(participant.own_start is None for participant in participants):
        return w
    starts = []
    for row, participant in enumerate(participants):
        if participant.own_start is None:
            starts.append(w[row : row + 1])
        else:
            starts.append(participant.own_start.to(w))
    return torch.cat(starts)


def finish(started: StartedWork) -> list[Draft | None]:
    """What the clients would send, once their work is done; None for a client without a step."""
    trained = started.trained
    work = trained.work
    message, memory = started.view.finish(trained.w, trained.sent, trained.mine, work)
    message = with_buffers(message, trained.buffers)
    seen = trained.seen.clamp(min=1)
    loss = trained.loss / seen
    hits = trained.hits / seen
    numbers = torch.cat([trained.seen, loss, hits], 1).tolist()  # a GPU is waited for once
    all_rows: tuple[Any, ...] = (message, memory, work.samples, work.steps, loss)
    drafts: list[Draft | None] = []
    for row, participant in enumerate(started.participants):
        steps = started.steps[row]
        if not steps:
            drafts.append(None)
            continue
        client_rows = all_rows
        if len(started.participants) > 1:
            client_rows = tuple(pick(rows, slice(row, row + 1)) for rows in all_rows)
        figures = _figures(steps, *numbers[row])
        drafts.append(Draft(participant.client, figures, *client_rows))
    return drafts


def _figures(steps: int, samples: float, loss: float, hits: float) -> TrainingFigures:
    if not samples:  # all batches were empty
        return steps, None, None
    return steps, loss, hits


def with_buffers(message: Rows, buffers: Rows) -> Rows:
    """A method's message with the model's buffers, whose names a method may not use."""
    for name in message:
        if name in BUFFERS or name.startswith(RESERVED):
            raise StudyError(
                f"a message has no entry {name!r} of its own: that name has a meaning on the wire"
            )
    return {**message, **pack(buffers)}


def example_reply(run: HorizontalRun, sent: Rows, buffers: Rows) -> Reply:
    """A reply by a client that has changed nothing: all replies of the run have its form.

    `sent` is one row.
    """
    view = client_view([run.algorithm], sent["x"])
    memory = view.client_init(sent["x"])
    w, next_memory, begun = view.begin(sent, memory)
    single = w.new_ones(1, 1)  # one sample, one epoch, one step
    work = begin_work(
        w,
        scheduled([(run, 0)], w),
        begun,
        samples=single,
        epochs=single,
        full_gradient=torch.zeros_like(w),
    )
    work = replace(work, steps=single)
    message, next_memory = view.finish(w, sent, next_memory, work)
    draft = Draft(
        client=0,
        figures=(1, None, None),
        message=with_buffers(message, pick(buffers, None)),
        method_memory=next_memory,
        samples=single,
        steps=single,
        loss=single,
    )
    (outcome,) = transmit(run, 0, [draft], lambda _: Memory(memory))
    return outcome.reply


def personal_model(
    participant: Participant, sent: Rows, buffers: Rows, trainer: RowTrainer
) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers.

    It is fine-tuned on the client's data if the study says so.
    """
    run = participant.run
    client = participant.client
    round = participant.round
    view = client_view([run.algorithm], sent["x"])
    row = view.personal(sent, remembered(participant).method)
    epochs = run.fine_tuning
    if not epochs:
        return row[0], buffers
    rng = generator(run.seed, "fine-tuning", client, round)
    batch_size = run.batch_size_of(client)
    passes = run.sampling.plain_passes
    batches = trainer.draw_batches(passes, participant.shard, epochs, batch_size, rng)
    seed = derive(run.seed, f"fine-tuning {client}", 0, round)
    return fit(run, round, (row, buffers), batches, trainer, seed)


def fit(
    run: HorizontalRun,
    round: int,
    model: tuple[Tensor, Rows],
    batches: Batches,
    trainer: RowTrainer,
    seed: int,
) -> tuple[Tensor, Rows]:
    """Plain training of one row (1, P), without the method's correction.

    Fine-tuning, pre-training and distillation train in this way.
    """
    row, buffers = model
    trained = trainer.train(
        row,
        [batches],
        optimiser=scheduled([(run, round)], row),
        buffers=pick(buffers, None),
        seeds=[seed],
    )
    return trained.w[0], pick(trained.buffers, 0)


def scheduled(turns: Sequence[tuple[HorizontalRun, int]], w: Tensor) -> Optimiser:
    """The optimisers of these runs as columns, at the learning rates of their rounds."""
    optimisers = [run.optimiser for run, _ in turns]
    rule: Any = columns(optimisers, type(optimisers[0]), w)
    factors = [[run.schedule.factor_at(round)] for run, round in turns]
    view: Optimiser = replaced(rule, lr=rule.lr * w.new_tensor(factors))
    return view
