"""The wire's client side: drafts become replies, and memories follow what arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, join, pick
from tacit.core.seeds import derive
from tacit.federated.cohort import weighted
from tacit.federated.wire.stage import BUFFERS, message_bytes
from tacit.rounds.inbox import stacked
from tacit.rounds.participant import ClientOutcome, Draft, Memory, Reply, client_view
from tacit.study.kinds.horizontal import HorizontalRun


def transmit(
    run: HorizontalRun, round: int, drafts: Sequence[Draft], recall: Callable[[int], Memory]
) -> list[ClientOutcome]:
    """What travels of drafts of one run, and the memories that follow from what arrives."""
    if not run.wire:
        return [_sent_as_it_is(draft, round) for draft in drafts]
    messages = {}
    for name in drafts[0].message:
        messages[name] = stacked([draft.message[name] for draft in drafts])
    memories = [recall(draft.client) for draft in drafts]
    crossing = _Crossing(run, round, drafts, memories)
    sent, arrived = crossing.cross(messages)
    return [crossing.outcome(row, sent, arrived) for row in range(len(drafts))]


def _sent_as_it_is(draft: Draft, round: int) -> ClientOutcome:
    reply = Reply(
        client=draft.client,
        round=round,
        message=draft.message,
        samples=draft.samples,
        steps=draft.steps,
        loss=draft.loss,
    )
    size = message_bytes(draft.message, ())
    return ClientOutcome(reply, Memory(draft.method_memory), draft.figures, size)


class _Crossing:
    """Drafts of one run on their way through the stages, a row each."""

    def __init__(
        self, run: HorizontalRun, round: int, drafts: Sequence[Draft], memories: Sequence[Memory]
    ) -> None:
        self.run = run
        self.round = round
        self.drafts = drafts
        self.memories = memories
        self.next_memories: Rows = {}  # the stages'
        self.debts: Rows = {}  # by entry, how much more is owed to the server than before
        self.summands: Rows = {}  # what enters a sum

    def cross(self, message: Rows) -> tuple[Rows, Rows]:
        """What travels; and what the server reads of it, or would read of single messages."""
        buffers = {name: rows for name, rows in message.items() if name in BUFFERS}
        travelling = {name: rows for name, rows in message.items() if name not in BUFFERS}
        readable = [stage for stage in self.run.wire if not stage.summed]
        for number in range(len(readable)):
            travelling = self._pass_stage(number, travelling)
        arrived = travelling
        for stage in reversed(readable):
            arrived = stage.server(arrived)
        arrived = self._with_debts(arrived)
        message = {**buffers, **travelling}
        if self.run.sums:
            self.summands = self._weight(message)
            message = self._pass_stage(len(readable), self.summands)
        return message, arrived

    def _with_debts(self, arrived: Rows) -> Rows:
        """What arrived, and what the server will get later: a client's memory counts both."""
        total = {}
        for name, rows in arrived.items():
            total[name] = rows + self.debts.get(name, 0)
        return total

    def outcome(self, row: int, message: Rows, arrived: Rows) -> ClientOutcome:
        """One client's reply and next memory, of all the rows that travel and arrive."""
        draft = self.drafts[row]
        rows = slice(row, row + 1)
        method: Rows = {}
        if draft.method_memory:
            method = self._settle(row, pick(arrived, rows))
        wire = {}
        for name, memory in self.next_memories.items():
            wire[name] = memory[rows].clone()
        reply = Reply(draft.client, self.round, pick(message, rows))
        if self.run.sums:
            entering = pick(self.summands, rows)
        else:
            entering = draft.message
            reply = replace(reply, samples=draft.samples, steps=draft.steps, loss=draft.loss)
        size = message_bytes(entering, self.run.wire)
        return ClientOutcome(reply, Memory(method, wire), draft.figures, size)

    def _settle(self, row: int, arrived: Rows) -> Rows:
        """The method's next memory.

        It follows what the server gets; otherwise server and client would not agree on it.
        """
        draft = self.drafts[row]
        if not draft.honest:
            return draft.method_memory
        view = client_view([self.run.algorithm], draft.samples)
        return view.settle(self.memories[row].method, draft.method_memory, arrived)

    def _pass_stage(self, number: int, message: Rows) -> Rows:
        """The messages after the stage of this number."""
        stage = self.run.wire[number]
        clients = range(len(self.drafts))
        memory = join([self._stage_memory(number, row, message) for row in clients])
        seeds = [self._seed(number, draft.client) for draft in self.drafts]
        names = message.keys()
        message, next_memory = stage.client(message, memory, seeds)
        lost = sorted(names - message.keys())
        if lost:
            raise StudyError(
                f"the stage {stage.name} leaves out {lost[0]!r}: entries keep their names on the"
                " wire"
            )
        for name, rows in next_memory.items():
            self.next_memories[f"{number} {name}"] = rows
        owed_before = stage.owed(memory)
        for name, rows in stage.owed(next_memory).items():
            increase = rows - owed_before[name]
            self.debts[name] = self.debts.get(name, 0) + increase
        return message

    def _seed(self, number: int, client: int) -> int:
        return derive(self.run.seed, "wire", number, client, self.round)

    def _stage_memory(self, number: int, row: int, message: Rows) -> Rows:
        """What a stage remembers of this client; before its first message, a new memory."""
        stage = self.run.wire[number]
        client_message = pick(message, slice(row, row + 1))
        wire = self.memories[row].wire
        memory = {}
        for name, new_rows in stage.init(client_message).items():
            memory[name] = wire.get(f"{number} {name}", new_rows)
        return memory

    def _weight(self, message: Rows) -> Rows:
        """The messages times the clients' weights: a sum cannot be weighted afterwards."""
        algorithm = self.run.algorithm
        samples = join([draft.samples for draft in self.drafts])
        losses = join([draft.loss for draft in self.drafts])
        weights = samples
        if algorithm.weights != "samples":
            weights = samples.new_ones(samples.shape)
        return weighted(message, weights, losses, algorithm.totals)
