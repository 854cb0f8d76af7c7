"""A client's half of a round: local work, the message, its way onto the wire, and the memory to keep.

All of it is a function of what a client is given: the run's settings, what the server sent, its memory, its batches and
a row trainer. K simulated clients and one deployed client make the same call:

    take_part = start -> finish -> transmit

A simulation calls the three apart, so that a GPU can be busy in between, and so that attackers can lie before the wire.
The memory that comes out is kept once the server has accepted the reply; a reply that is lost changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns, join, pick, replaced
from tacit.core.seeds import derive, generator
from tacit.core.vectors import pack
from tacit.federated.algorithm import Algorithm
from tacit.federated.client_side import client_class
from tacit.federated.cohort import RESERVED, weighted
from tacit.federated.wire.stage import BUFFERS, message_bytes
from tacit.rounds.inbox import stacked
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Batches
from tacit.training.optimisers import Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.sampling import Epochs
from tacit.training.trainer import Trained, begin_work

PLAIN_PASSES = Epochs()
Figures = tuple[
    int, float | None, float | None
]  # a client's steps, and its loss and hits where it saw any sample


@dataclass(frozen=True)
class Memory:
    """What a client remembers between rounds."""

    method: Rows = field(default_factory=dict)  # the algorithm's, such as SCAFFOLD's c_k
    wire: Rows = field(default_factory=dict)  # "0 dx" is that of the first stage for the entry dx


@dataclass(frozen=True)
class Participant:
    """A client in one round."""

    run: HorizontalRun
    client: int
    round: int  # the first is 0
    shard: Tensor  # its training samples, as indices into the trainer's
    initial: Tensor  # (P,), the global parameters before the first round
    memory: Memory = field(default_factory=Memory)
    own_start: Tensor | None = None  # (1, P), in place of what was sent

    def seed(self, purpose: str) -> int:
        return derive(self.run.seed, purpose, self.client, self.round)


@dataclass(frozen=True)
class Started:
    """Local work on its way: on a GPU it may still be going on."""

    participants: Sequence[Participant]
    view: Algorithm
    trained: Trained
    steps: list[int]


@dataclass(frozen=True)
class Draft:
    """What a client would send if there were no wire; every tensor has one row."""

    client: int
    figures: Figures
    message: Rows
    memory: Rows  # the method's next one
    samples: Tensor
    steps: Tensor
    loss: Tensor
    honest: bool = True  # the memory follows what arrives; a liar's does not


@dataclass(frozen=True)
class Reply:
    """What reaches the server; every tensor has one row. Under a sum, columns of single clients are not sent."""

    client: int
    round: int
    message: Rows
    samples: Tensor | None = None
    steps: Tensor | None = None
    loss: Tensor | None = None


@dataclass(frozen=True)
class Finished:
    """A client's round: the reply, and what stays with the client."""

    reply: Reply
    memory: Memory  # to be kept once the reply is accepted
    figures: Figures
    bytes: int  # of the reply

    @property
    def client(self) -> int:
        return self.reply.client


def take_part(
    participants: Sequence[Participant],
    sent: Rows,
    batches: Sequence[Batches],
    trainer: RowTrainer,
    buffers: Rows | None = None,
) -> list[Finished | None]:
    """A round of these clients, a row each; one without a step gives no reply."""
    drafts = finish(start(participants, sent, batches, trainer, buffers))
    finished: list[Finished | None] = []
    for participant, draft in zip(participants, drafts, strict=True):
        memories = {participant.client: remembered(participant)}
        finished.append(
            transmit(participant.run, participant.round, [draft], memories.__getitem__)[0]
            if draft
            else None
        )
    return finished


def client_view(algorithms: Sequence[Algorithm], like: Tensor) -> Algorithm:
    """The client's side of these algorithms, one row each, with columns for float fields."""
    return columns(algorithms, client_class(type(algorithms[0])), like)


def draw_batches(
    run: HorizontalRun, client: int, round: int, shard: Tensor, trainer: RowTrainer
) -> Batches:
    """The samples of each local step that a client takes in a round; `shard` are its training samples."""
    order = generator(run.seed, "batches", client, round)
    batches = trainer.draw_batches(
        run.sampling, shard, run.epochs_of(client), run.batch_size_of(client), order
    )
    return batches.first(run.behaviour.steps(len(batches), run.seed, client, round))


def remembered(participant: Participant, view: Algorithm | None = None) -> Memory:
    """The client's memory; before its first round, a new one. `view` is its client's side, if there is one already."""
    if participant.memory.method:
        return participant.memory
    x = participant.initial[None]
    view = view or client_view([participant.run.algorithm], x)
    return Memory(view.client_init(x), participant.memory.wire)


def start(
    participants: Sequence[Participant],
    sent: Rows,
    batches: Sequence[Batches],
    trainer: RowTrainer,
    buffers: Rows | None = None,
) -> Started:
    """Sets these clients to work."""
    view = client_view([participant.run.algorithm for participant in participants], sent["x"])
    view_of_one = (
        view if len(participants) == 1 else None
    )  # the usual case on a CPU: no need to make it twice
    memory = join([remembered(participant, view_of_one).method for participant in participants])
    w, memory, begun = view.begin(sent, memory)
    trained = trainer.train(
        _first_parameters(participants, w),
        batches,
        rule=view,
        optimiser=scheduled(
            [(participant.run, participant.round) for participant in participants], w
        ),
        start=begun,
        sent=sent,
        mine=memory,
        buffers=buffers,
        samples=w.new_tensor([[len(participant.shard)] for participant in participants]),
        epochs=w.new_tensor(
            [[participant.run.epochs_of(participant.client)] for participant in participants]
        ),
        full_of=[participant.shard for participant in participants]
        if view.needs_full_gradient
        else None,
        seeds=[participant.seed("training") for participant in participants],
    )
    return Started(participants, view, trained, [len(steps) for steps in batches])


def finish(started: Started) -> list[Draft | None]:
    """What the clients would send, once the work is done; of one without a step, nothing."""
    trained = started.trained
    message, memory = started.view.finish(trained.w, trained.sent, trained.mine, trained.work)
    message = with_buffers(message, trained.buffers)
    seen = trained.seen.clamp(min=1)
    loss, hits, work = trained.loss / seen, trained.hits / seen, trained.work
    all_rows: tuple[Any, ...] = (message, memory, work.samples, work.steps, loss)
    numbers = torch.cat([trained.seen, loss, hits], 1).tolist()
    drafts: list[Draft | None] = []
    for row, (participant, steps) in enumerate(
        zip(started.participants, started.steps, strict=True)
    ):
        if not steps:
            drafts.append(None)
            continue
        one_row = all_rows
        if len(started.participants) > 1:
            one_row = tuple(pick(rows, slice(row, row + 1)) for rows in all_rows)
        count, mean_loss, mean_hits = numbers[row]
        figures: Figures = (steps, mean_loss, mean_hits)
        if not count:  # all batches were empty
            figures = (steps, None, None)
        drafts.append(Draft(participant.client, figures, *one_row))
    return drafts


def with_buffers(message: Rows, buffers: Rows) -> Rows:
    """A method's message together with the model's buffers, whose names are not for the method."""
    for name in message:
        if name in BUFFERS or name.startswith(RESERVED):
            raise StudyError(
                f"a message has no entry {name!r} of its own: that name has a meaning on the wire"
            )
    return {**message, **pack(buffers)}


def example_reply(run: HorizontalRun, sent: Rows, buffers: Rows) -> Reply:
    """A reply by a client that has changed nothing: all replies of the run have its form. `sent` is one row."""
    view = client_view([run.algorithm], sent["x"])
    memory = view.client_init(sent["x"])
    w, next_memory, begun = view.begin(sent, memory)
    one = w.new_ones(1, 1)
    work = begin_work(
        w,
        scheduled([(run, 0)], w),
        begun,
        samples=one,
        epochs=one,
        full_gradient=torch.zeros_like(w),
    )
    message, next_memory = view.finish(w, sent, next_memory, replace(work, steps=one))
    draft = Draft(
        0, (1, None, None), with_buffers(message, pick(buffers, None)), next_memory, one, one, one
    )
    (finished,) = transmit(run, 0, [draft], lambda _: Memory(memory))
    return finished.reply


def transmit(
    run: HorizontalRun, round: int, drafts: Sequence[Draft], recall: Callable[[int], Memory]
) -> list[Finished]:
    """The wire's client side, for drafts of one run: what travels, and the memories by what arrives."""
    if not run.wire:
        return [_sent_as_it_is(draft, round) for draft in drafts]
    stacks = {
        name: stacked([draft.message[name] for draft in drafts]) for name in drafts[0].message
    }
    crossing = _Crossing(run, round, drafts, [recall(draft.client) for draft in drafts])
    message, arrived = crossing.cross(stacks)
    finished = []
    for row, draft in enumerate(drafts):
        rows = slice(row, row + 1)
        method = crossing.settled(row, pick(arrived, rows)) if draft.memory else {}
        memory = Memory(method, {name: kept[rows].clone() for name, kept in crossing.kept.items()})
        reply = Reply(draft.client, round, pick(message, rows))
        if not crossing.summed:
            reply = replace(reply, samples=draft.samples, steps=draft.steps, loss=draft.loss)
        entering = pick(crossing.entering, rows) if crossing.summed else draft.message
        size = message_bytes(entering, run.wire)
        finished.append(Finished(reply, memory, draft.figures, size))
    return finished


class _Crossing:
    """Drafts of one run on their way through the stages, a row each."""

    def __init__(
        self, run: HorizontalRun, round: int, drafts: Sequence[Draft], memories: Sequence[Memory]
    ) -> None:
        self.run, self.round, self.drafts, self.memories = run, round, drafts, memories
        self.kept: Rows = {}  # the stages' next memories
        self.debts: Rows = {}  # by entry, how much more is owed than before
        self.summed = run.wire[-1].summed
        self.entering: Rows = {}  # the sum

    def cross(self, message: Rows) -> tuple[Rows, Rows]:
        """What travels; and what the server reads of it, or will, were it to look at single messages."""
        passing = {name: rows for name, rows in message.items() if name in BUFFERS}
        travelling = {name: rows for name, rows in message.items() if name not in BUFFERS}
        readable = [stage for stage in self.run.wire if not stage.summed]
        for place in range(len(readable)):
            travelling = self._through(place, travelling)
        arrived = travelling
        for stage in reversed(readable):
            arrived = stage.server(arrived)
        arrived = {name: rows + self.debts.get(name, 0) for name, rows in arrived.items()}
        if self.summed:
            self.entering = self._weighted({**passing, **travelling})
            return self._through(len(readable), self.entering), arrived
        return {**passing, **travelling}, arrived

    def settled(self, row: int, arrived: Rows) -> Rows:
        """The method's next memory: by what the server gets, or it would count otherwise than the client."""
        draft = self.drafts[row]
        if not draft.honest:
            return draft.memory
        view = client_view([self.run.algorithm], draft.samples)
        return view.settle(self.memories[row].method, draft.memory, arrived)

    def _through(self, place: int, message: Rows) -> Rows:
        """The messages after one stage."""
        stage = self.run.wire[place]
        old = join([self._stage_memory(place, row, message) for row in range(len(self.drafts))])
        clients = [draft.client for draft in self.drafts]
        seeds = [derive(self.run.seed, "wire", place, client, self.round) for client in clients]
        before = message.keys()
        message, new = stage.client(message, old, seeds)
        if lost := sorted(before - message.keys()):
            raise StudyError(
                f"the stage {stage.name} leaves out {lost[0]!r}: entries keep their names on the wire"
            )
        self.kept |= {f"{place} {name}": rows for name, rows in new.items()}
        owed_before = stage.owed(old)
        for name, rows in stage.owed(new).items():
            self.debts[name] = self.debts.get(name, 0) + (rows - owed_before[name])
        return message

    def _stage_memory(self, place: int, row: int, message: Rows) -> Rows:
        """What the stage remembers of this client; before its first message, a new memory."""
        wire = self.memories[row].wire
        fresh = self.run.wire[place].init(pick(message, slice(row, row + 1)))
        return {name: wire.get(f"{place} {name}", rows) for name, rows in fresh.items()}

    def _weighted(self, message: Rows) -> Rows:
        """As a sum needs them: it cannot weight afterwards."""
        algorithm = self.run.algorithm
        samples = join([draft.samples for draft in self.drafts])
        weight = samples if algorithm.weights == "samples" else samples.new_ones(samples.shape)
        losses = join([draft.loss for draft in self.drafts])
        return weighted(message, weight, losses, algorithm.totals)


def _sent_as_it_is(draft: Draft, round: int) -> Finished:
    reply = Reply(draft.client, round, draft.message, draft.samples, draft.steps, draft.loss)
    return Finished(reply, Memory(draft.memory), draft.figures, message_bytes(draft.message, ()))


def personal_model(
    participant: Participant, sent: Rows, buffers: Rows, trainer: RowTrainer
) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers: fine-tuned on its own data if the study says so."""
    view = client_view([participant.run.algorithm], sent["x"])
    row = view.personal(sent, remembered(participant).method)
    epochs = participant.run.fine_tuning
    if not epochs:
        return row[0], buffers
    order = generator(participant.run.seed, "fine-tuning", participant.client, participant.round)
    batch_size = participant.run.batch_size_of(participant.client)
    batches = trainer.draw_batches(PLAIN_PASSES, participant.shard, epochs, batch_size, order)
    seed = derive(participant.run.seed, f"fine-tuning {participant.client}", 0, participant.round)
    return fit(participant.run, participant.round, (row, buffers), batches, trainer, seed)


def fit(
    run: HorizontalRun,
    round: int,
    model: tuple[Tensor, Rows],
    batches: Batches,
    trainer: RowTrainer,
    seed: int,
) -> tuple[Tensor, Rows]:
    """Plain training of one row (1, P), without the method's correction: fine-tuning, pre-training, distillation."""
    row, buffers = model
    trained = trainer.train(
        row,
        [batches],
        optimiser=scheduled([(run, round)], row),
        buffers=pick(buffers, None),
        seeds=[seed],
    )
    return trained.w[0], {name: value[0] for name, value in trained.buffers.items()}


def scheduled(turns: Sequence[tuple[HorizontalRun, int]], w: Tensor) -> Optimiser:
    """The optimisers of these runs as columns, at the learning rates of their rounds."""
    optimisers = [run.optimiser for run, _ in turns]
    rule: Any = columns(optimisers, type(optimisers[0]), w)
    factors = [[run.schedule.factor_at(round)] for run, round in turns]
    view: Optimiser = replaced(rule, lr=rule.lr * w.new_tensor(factors))
    return view


def _first_parameters(participants: Sequence[Participant], w: Tensor) -> Tensor:
    if all(participant.own_start is None for participant in participants):
        return w
    starts = [
        w[row : row + 1] if participant.own_start is None else participant.own_start
        for row, participant in enumerate(participants)
    ]
    return torch.cat([start.to(w) for start in starts])
