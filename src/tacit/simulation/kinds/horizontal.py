"""The round loop over rows: clients of all runs of a block.

They are played one after another on a CPU, and as one batch on a GPU.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import count_bytes, join, pick
from tacit.core.seeds import numpy_generator
from tacit.core.vectors import pack
from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.data.public import align
from tacit.models.model import make_module
from tacit.rounds.client import StartedWork, finish, start
from tacit.rounds.inbox import Inbox
from tacit.rounds.participant import ClientOutcome, Draft
from tacit.rounds.reply_checks import form_of
from tacit.rounds.server import RoundEnd, broadcast, close_round, projected
from tacit.rounds.server_data import ServerData
from tacit.rounds.transmission import transmit
from tacit.simulation.assessment import Assessor, Findings, LocalTest
from tacit.simulation.batches_ahead import BatchesAhead
from tacit.simulation.engine import Engine, Record
from tacit.simulation.lies import with_lies
from tacit.simulation.metrics import BlockMetrics, TestAnswers, client_model, test_runs
from tacit.simulation.state import BlockSamples, RunState, prepare
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.tested_clients import is_crowd
from tacit.training.batches import Samples
from tacit.training.evaluation import Answers
from tacit.training.losses import Loss, fit_loss
from tacit.training.row_trainer import RowTrainer
from tacit.training.yardstick import Yardstick

Job = tuple[RunState, int]  # a run's client
CHANGED = ("server", "buffers", "method_memory", "wire_memory")  # by a round


@dataclass(frozen=True)
class ClosedRound:
    """A round at the server: what came of it, and what travelled.

    `before` has the state before it, in case the new model turns out to have diverged.
    """

    end: RoundEnd
    outcomes: Sequence[ClientOutcome]
    before: dict[str, Any]
    bytes_up: int
    bytes_down: int


class Simulation(Engine, kind="horizontal"):
    """Runs of one block, round by round.

    `form` and `at_once` (rows that are trained together) follow from the device unless given.
    `folder` takes the clients' memories where they are too many to hold. `metric` decides, in place
    of the runs' own. `make_trainer` makes what trains rows, from a module and samples.
    """

    def __init__(
        self,
        runs: Sequence[tuple[str, HorizontalRun]],
        dataset: Dataset,
        public: Dataset | None = None,
        *,
        device: str = "cpu",
        at_once: int | None = None,
        folder: Path | None = None,
        partitions: Mapping[str, Partition] | None = None,
        metric: str | None = None,
        make_trainer: Callable[..., RowTrainer] = RowTrainer,
        **options: Any,
    ) -> None:
        target = torch.device(device)
        samples, self.module, self.states = prepare(runs, dataset, target, partitions)
        options |= {"device": device, "at_once": at_once}
        options |= _loss_of(runs, dataset)
        self.trainer = make_trainer(self.module, samples.train, **options)
        self.layout = self.trainer.layout
        test_samples = self.trainer.prepared(samples.test)
        self.samples = BlockSamples(self.trainer.samples, test_samples)
        self.dataset = dataset
        self.shape = tuple(dataset.x.shape[1:])
        self.outputs = dataset.outputs
        self.yardstick = Yardstick.of(dataset, metric or runs[0][1].metric)
        self.metrics = BlockMetrics(self.trainer, self.samples, self.yardstick)
        self.batches_ahead = BatchesAhead(self.trainer)
        self.server_data = self._data_of_servers(self._public_samples(public, dataset))
        for state in self.states:
            state.folder = folder
            self._prepare_server(state)

    def play_round(self) -> Iterator[tuple[Record, float]]:
        """One round of every run that is going: its record for the history, and its seconds."""
        with self.trainer.computing():
            going = self.going
            chosen: dict[str, list[int]] = {}
            jobs: list[Job] = []
            for state in going:
                chosen[state.id], replying = choose(state)
                jobs += [(state, client) for client in replying]
            drafts = self.gather_drafts(jobs)
            closed = [self._deliver(state, drafts[state.id], chosen[state.id]) for state in going]
            cohorts = [(state, chosen[state.id]) for state in going]
            answers = test_runs(self.trainer, self.samples, cohorts)
            records = []
            for state, closed_round, of_run in zip(going, closed, answers, strict=True):
                records.append(self._record_round(state, closed_round, of_run))
        yield from records

    def gather_drafts(self, jobs: list[Job]) -> dict[str, list[Draft]]:
        """Sets all clients to work, draws the next round's batches meanwhile, and waits."""
        going = self.going
        at_once = self.trainer.at_once
        inboxes = self._make_inboxes(jobs)
        drafts: dict[str, list[Draft]] = {state.id: [] for state in going}
        job_chunks = [jobs[first : first + at_once] for first in range(0, len(jobs), at_once)]
        apart = all(shares_nothing(state) for state in self.states)
        begin = time.perf_counter()
        started_chunks = self.trainer.spread(self._start_chunk, job_chunks, apart=apart)
        for number, started in enumerate(started_chunks):
            chunk = job_chunks[number]
            if number == len(job_chunks) - 1:
                self.batches_ahead.prepare(going)
            for (state, _), draft in zip(chunk, finish(started), strict=True):
                if draft:
                    message = inboxes[state.id].take(draft.message)
                    drafts[state.id].append(replace(draft, message=message))
            now = time.perf_counter()
            for state, _ in chunk:
                state.seconds += (now - begin) / len(chunk)
            begin = now
        return drafts

    def saved(self, *, portable: bool = False) -> list[dict[str, Any]]:
        """For a checkpoint; `portable` where it is to be restored without the files in `folder`."""
        return [state.saved(portable=portable) for state in self.states]

    def checkpointed(self) -> None:
        """Says that what `saved` gave last has been written; older checkpoints are given up."""
        for state in self.states:
            for store in state.stores:
                store.checkpointed()

    def discard(self) -> None:
        """Removes the memories' files, once no checkpoint needs them."""
        for state in self.states:
            for store in state.stores:
                store.discard()

    def assess(self, state: RunState) -> Findings:
        """What is to be known of the run's last model, and of the models that clients use."""
        run = state.run
        clients = []
        if not is_crowd(run) and not run.is_reference:
            clients = list(range(run.clients))
        with self.trainer.computing():
            global_model = (state.server["x"], state.buffers)
            personal_models = {}
            for client in clients if run.is_personal else []:
                personal_models[client] = client_model(self.trainer, state, client)

            def answer(x: Tensor, y: Tensor, client: int | None) -> Answers:
                model = global_model
                if client is not None:
                    model = personal_models.get(client, global_model)
                (answers,) = self.trainer.test([model], self.trainer.prepared(Samples(x, y)))
                return answers

            tests = {client: self._local_test(state, client) for client in clients}
            return Assessor(self.dataset, self.yardstick, run.importance).assess(answer, tests)

    def _local_test(self, state: RunState, client: int) -> LocalTest:
        index = state.test[client]
        samples = self.samples.train
        rows = index.numpy() - state.offset
        return LocalTest(samples.features(index), samples.y[index].cpu(), rows)

    def state_dict(self, state: RunState, client: int | None = None) -> dict[str, Tensor]:
        """The run's global model, or the one that a client uses, as torch saves models."""
        model = (state.server["x"], state.buffers)
        if client is not None:
            with self.trainer.computing():
                model = client_model(self.trainer, state, client)
        self.layout.load(self.module, *model)
        entries = self.module.state_dict()
        return {name: value.detach().cpu().clone() for name, value in entries.items()}

    def _public_samples(self, public: Dataset | None, dataset: Dataset) -> Samples | None:
        if public is None:
            return None
        x, y = align(public, dataset)
        device = self.trainer.device
        return Samples(x.to(device), y.to(device))

    def _data_of_servers(self, public: Samples | None) -> dict[str, ServerData]:
        """By run, the data that its server has; runs without any are left out."""
        samples = self.samples.train
        by_run = {}
        for state in self.states:
            if state.run.server_samples or public:
                sample = Samples(samples.features(state.sample), samples.y[state.sample])
                by_run[state.id] = ServerData(state.run, self.trainer, sample, public)
        return by_run

    def _prepare_server(self, state: RunState) -> None:
        """The server's work before the first round."""
        run = state.run
        if run.pretraining:
            data = self.server_data[state.id]
            with self.trainer.computing():
                state.initial, state.buffers = data.pretrained(state.initial, state.buffers)
            state.server = run.algorithm.server_init(state.initial, run.clients)
        state.server = projected(state.server, run.radius)

    def _make_inboxes(self, jobs: Sequence[Job]) -> dict[str, Inbox]:
        """One for each run; if clients are trained one by one, with a row for each of them."""
        if self.trainer.at_once > 1:
            return {state.id: Inbox(None) for state in self.going}
        sizes = Counter(state.id for state, _ in jobs)
        return {state.id: Inbox(sizes[state.id]) for state in self.going}

    def _start_chunk(self, trainer: RowTrainer, jobs: Sequence[Job]) -> StartedWork:
        """Sets these clients to work."""
        participants = []
        sent = []
        buffers = []
        batches = []
        for state, client in jobs:
            participants.append(state.participant(client, self._own_start(state, client)))
            sent.append(broadcast(state.run, state.server, client))
            buffers.append(pick(state.buffers, None))
            batches.append(self.batches_ahead.take(state, client))
        return start(participants, join(sent), batches, trainer, join(buffers))

    def _own_start(self, state: RunState, client: int) -> Tensor | None:
        """A client's own random weights in the first round, if the study wants different ones."""
        run = state.run
        if run.initial != "different" or state.round > 0:
            return None
        module = make_module(run.model, self.shape, self.outputs, run.seed, "client", client)
        return self.layout.flatten(module).to(state.initial)[None]

    def _deliver(self, state: RunState, drafts: list[Draft], chosen: list[int]) -> ClosedRound:
        """Delivers the messages to the server, which closes the round with them."""
        begin = time.perf_counter()
        bytes_down = count_broadcast(state, chosen)
        drafts = with_lies(state, sorted(drafts, key=lambda draft: draft.client))
        outcomes = []
        if drafts:
            outcomes = transmit(state.run, state.round, drafts, state.recall)
        end = self._close_at_server(state, outcomes, chosen)
        before = {name: getattr(state, name) for name in CHANGED}
        if end.state is not None:
            state.server = end.state.server
            state.buffers = end.state.buffers
            accepted = [outcome for outcome in outcomes if outcome.client in end.accepted]
            state.remember({outcome.client: outcome.memory for outcome in accepted})
        state.round += 1
        state.seconds += time.perf_counter() - begin
        bytes_up = sum(outcome.bytes for outcome in outcomes)
        return ClosedRound(end, outcomes, before, bytes_up, bytes_down)

    def _close_at_server(
        self, state: RunState, outcomes: Sequence[ClientOutcome], chosen: list[int]
    ) -> RoundEnd:
        """The end of the round at the server; it refuses no reply of the program's own clients."""
        replied = {outcome.client for outcome in outcomes}
        silent = sorted(set(chosen) - replied)
        # all clients are this program's own, so that the first reply has the form of all
        form = form_of(outcomes[0].reply) if outcomes else ()
        end = close_round(
            state.run,
            state.server_state,
            [outcome.reply for outcome in outcomes],
            chosen=chosen,
            form=form,
            everyone=float(state.train.samples),
            silent_sizes={client: len(state.train[client]) for client in silent},
            server_data=self.server_data.get(state.id),
        )
        for reply, flaw in end.refused:
            name = state.run.algorithm.name
            raise StudyError(f"{name}: the reply of client {reply.client} is refused: {flaw}")
        return end

    def _record_round(
        self, state: RunState, closed: ClosedRound, answers: TestAnswers
    ) -> tuple[Record, float]:
        """The round's record and its seconds; also decides whether the run goes on."""
        begin = time.perf_counter()
        record: Record = {"run": state.id, "round": state.round, "loss": None}
        if closed.end.state is not None:
            record |= self.metrics.global_metrics(state, answers)
        if record["loss"] is None or not math.isfinite(record["loss"]):
            for name, value in closed.before.items():
                setattr(state, name, value)
            state.status = "diverged"
            record |= {"loss": None, **self.yardstick.no_figures}
        worked = {outcome.client: outcome.figures for outcome in closed.outcomes}
        record |= self.metrics.local_metrics(state, worked, answers)
        record["replies"] = len(closed.outcomes)
        record["updated"] = closed.end.enough
        record["bytes_up"] = closed.bytes_up
        record["bytes_down"] = closed.bytes_down
        state.update_status(record[self.yardstick.name], self.yardstick.metric)
        record["status"] = state.status
        seconds = state.seconds + time.perf_counter() - begin
        state.seconds = 0.0
        return record, seconds


def _loss_of(runs: Sequence[tuple[str, HorizontalRun]], dataset: Dataset) -> dict[str, Loss]:
    """As an option of a trainer, what a block's rows are trained for; none for the usual loss."""
    first, *others = [run.loss for _, run in runs]
    if any(loss != first for loss in others):
        raise ValueError("runs: expected runs of one loss, since they share a trainer")
    loss = fit_loss(first, dataset)
    return {} if loss is None else {"loss": loss}


def choose(state: RunState) -> tuple[list[int], list[int]]:
    """The clients of this round, and those of them whose replies will not be lost."""
    chosen = state.run.participants(state.round)
    if not state.run.dropout:
        return chosen, chosen
    return chosen, [client for client in chosen if not is_lost(state, client)]


def is_lost(state: RunState, client: int) -> bool:
    """Whether the client's reply of this round is lost."""
    rng = numpy_generator(state.run.seed, "dropout", client, state.round)
    return bool(rng.random() < state.run.dropout)


def shares_nothing(state: RunState) -> bool:
    """Whether this run's clients can train in threads.

    They cannot if they share a file of memories or a generator. A method of the user's own might
    draw from torch's generator.
    """
    draws_weights = state.run.initial == "different" and state.round == 0
    methods = (state.run.algorithm, state.run.optimiser, state.run.loss)
    are_ours = all(type(method).__module__.startswith("tacit.") for method in methods)
    are_ours = are_ours and not state.run.loss.calls
    return are_ours and not draws_weights and not state.stores


def count_broadcast(state: RunState, chosen: Sequence[int]) -> int:
    """The bytes that the server sends to the clients of a round."""
    buffers = count_bytes(pack(pick(state.buffers, None)))
    total = 0
    for client in chosen:
        total += count_bytes(broadcast(state.run, state.server, client)) + buffers
    return total
