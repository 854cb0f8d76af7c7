"""The round loop over rows: clients of all runs of a group, one after another on a CPU, as one batch on a GPU."""

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
from tacit.core.seeds import generator, numpy_generator
from tacit.core.vectors import pack
from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.data.public import align
from tacit.federated.wire.stage import rows_of
from tacit.models.model import make_module
from tacit.rounds.client import Draft, Finished, Started, draw_batches, finish, start, transmit
from tacit.rounds.inbox import Inbox, stacked
from tacit.rounds.server import RoundEnd, broadcast, close_round, form_of, projected
from tacit.rounds.server_data import ServerData
from tacit.simulation.engine import Engine
from tacit.simulation.metrics import (
    Score,
    TestFigures,
    client_model,
    global_metrics,
    local_metrics,
    test_runs,
)
from tacit.simulation.state import GroupSamples, RunState, prepare
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Batches, Samples
from tacit.training.row_trainer import RowTrainer

Job = tuple[RunState, int]  # a run's client


@dataclass(frozen=True)
class Closed:
    """A round at the server: what came of it, what travelled, and the state before, for a model that turns out bad."""

    end: RoundEnd
    finished: Sequence[Finished]
    before: dict[str, Any]
    up: int  # bytes
    down: int


class Simulation(Engine, kind="horizontal"):
    """Runs of one group, round by round. `form` and `at_once` (rows that are trained together) follow from the device unless given.

    `folder` takes the clients' memories where they are too many to hold. `make_trainer` makes what trains rows, of a
    module and samples.
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
        make_trainer: Callable[..., RowTrainer] = RowTrainer,
        **options: Any,
    ) -> None:
        pool, self.module, self.states = prepare(runs, dataset, torch.device(device), partitions)
        self.trainer = make_trainer(
            self.module, pool.train, device=device, at_once=at_once, **options
        )
        self.layout = self.trainer.layout
        self.pool = GroupSamples(self.trainer.samples, self.trainer.prepared(pool.test))
        self.shape, self.outputs = tuple(dataset.x.shape[1:]), dataset.outputs
        self.score = Score.of(dataset)
        self.batches_ahead = BatchesAhead(self.trainer)
        self.public = self._public_samples(public, dataset)
        self.aids = {
            state.id: self._aid(state)
            for state in self.states
            if state.run.server_samples or self.public
        }
        for state in self.states:
            state.folder = folder
            self._prepare_server(state)

    def play_round(self) -> Iterator[tuple[dict[str, Any], float]]:
        """One round of every run that is still going: each one's record for the history, and its seconds."""
        with self.trainer.computing():
            going = self.going
            chosen = {state.id: choose(state) for state in going}
            jobs = [(state, client) for state in going for client in chosen[state.id][1]]
            drafts = self.gather_drafts(jobs)
            closed = [self._close(state, drafts[state.id], chosen[state.id][0]) for state in going]
            tests = test_runs(
                self.trainer, self.pool, [(state, chosen[state.id][0]) for state in going]
            )
            records = [self._conclude(*each) for each in zip(going, closed, tests, strict=True)]
        yield from records

    def gather_drafts(self, jobs: list[Job]) -> dict[str, list[Draft]]:
        """Sets all clients to work, makes the next round's plans meanwhile, and waits."""
        sizes = Counter(state.id for state, _ in jobs)
        size = self.trainer.at_once
        inboxes = {state.id: Inbox(sizes[state.id] if size == 1 else None) for state in self.going}
        drafts: dict[str, list[Draft]] = {state.id: [] for state in self.going}
        groups = [jobs[first : first + size] for first in range(0, len(jobs), size)]
        apart = all(shares_nothing(state) for state in self.states)
        begin = time.perf_counter()
        for number, started in enumerate(self.trainer.spread(self._start, groups, apart=apart)):
            group = groups[number]
            if number == len(groups) - 1:
                self.batches_ahead.prepare(self.going)
            for (state, _), draft in zip(group, finish(started), strict=True):
                if draft:
                    message = inboxes[state.id].take(draft.message)
                    drafts[state.id].append(replace(draft, message=message))
            begin, passed = time.perf_counter(), time.perf_counter() - begin
            for state, _ in group:
                state.seconds += passed / len(group)
        return drafts

    def saved(self, *, whole: bool = False) -> list[dict[str, Any]]:
        """For a checkpoint; `whole` where it is to be restored without the files in `folder`."""
        return [state.saved(whole=whole) for state in self.states]

    def checkpointed(self) -> None:
        """Says that what `saved` gave last has been written: what only older checkpoints need is given up."""
        for store in (store for state in self.states for store in state.stores):
            store.checkpointed()

    def discard(self) -> None:
        """Removes the memories' files, once no checkpoint needs them."""
        for store in (store for state in self.states for store in state.stores):
            store.discard()

    def state_dict(self, state: RunState, client: int | None = None) -> dict[str, Tensor]:
        """The run's global model, or the one that a client uses, as torch saves models."""
        model = (state.server["x"], state.buffers)
        if client is not None:
            with self.trainer.computing():
                model = client_model(self.trainer, state, client)
        self.layout.load(self.module, *model)
        return {
            name: value.detach().cpu().clone() for name, value in self.module.state_dict().items()
        }

    def _public_samples(self, public: Dataset | None, dataset: Dataset) -> Samples | None:
        if public is None:
            return None
        x, y = align(public, dataset)
        return Samples(x.to(self.trainer.device), y.to(self.trainer.device))

    def _aid(self, state: RunState) -> ServerData:
        """What the run's server has to learn from and to judge by."""
        samples = self.pool.train
        sample = Samples(samples.features(state.sample), samples.y[state.sample])
        return ServerData(state.run, self.trainer, sample, self.public)

    def _prepare_server(self, state: RunState) -> None:
        """The server's work before the first round."""
        if state.run.pretraining:
            with self.trainer.computing():
                state.initial, state.buffers = self.aids[state.id].pretrained(
                    state.initial, state.buffers
                )
            state.server = state.run.algorithm.server_init(state.initial, state.run.clients)
        state.server = projected(state.server, state.run.radius)

    def _start(self, trainer: RowTrainer, jobs: Sequence[Job]) -> Started:
        """Sets these clients to work."""
        participants = [
            state.participant(client, self._own_start(state, client)) for state, client in jobs
        ]
        sent = join([broadcast(state.run, state.server, client) for state, client in jobs])
        buffers = join([pick(state.buffers, None) for state, _ in jobs])
        batches = [self.batches_ahead.take(*job) for job in jobs]
        return start(participants, sent, batches, trainer, buffers)

    def _own_start(self, state: RunState, client: int) -> Tensor | None:
        """A client's own random weights in the first round, if the study wants different ones."""
        if state.run.initial != "different" or state.round > 0:
            return None
        module = make_module(
            state.run.model, self.shape, self.outputs, state.run.seed, "client", client
        )
        return self.layout.flatten(module).to(state.initial)[None]

    def _close(self, state: RunState, drafts: list[Draft], chosen: list[int]) -> Closed:
        """The messages on their way, and the server's half of the round."""
        begin = time.perf_counter()
        buffers = count_bytes(pack(pick(state.buffers, None)))
        down = sum(
            count_bytes(broadcast(state.run, state.server, client)) + buffers for client in chosen
        )
        drafts = with_lies(state, sorted(drafts, key=lambda draft: draft.client))
        finished = transmit(state.run, state.round, drafts, state.recall) if drafts else []
        replied = {each.client for each in finished}
        end = close_round(
            state.run,
            state.standing,
            [each.reply for each in finished],
            chosen=chosen,
            form=form_of(finished[0].reply)
            if finished
            else (),  # all clients are this program's own
            everyone=float(state.train.samples),
            missing={client: len(state.train[client]) for client in sorted(set(chosen) - replied)},
            aid=self.aids.get(state.id),
        )
        for reply, why in end.refused:
            raise StudyError(
                f"{state.run.algorithm.name}: the reply of client {reply.client} is refused: {why}"
            )
        before = {
            name: getattr(state, name) for name in ("server", "buffers", "memory", "wire_memory")
        }
        if end.state is not None:
            state.server, state.buffers = end.state.server, end.state.buffers
            state.remember(
                {each.client: each.memory for each in finished if each.client in end.accepted}
            )
        state.round += 1
        state.seconds += time.perf_counter() - begin
        return Closed(end, finished, before, sum(each.bytes for each in finished), down)

    def _conclude(
        self, state: RunState, closed: Closed, tests: TestFigures
    ) -> tuple[dict[str, Any], float]:
        """What came of the round, and whether the run goes on."""
        begin = time.perf_counter()
        record: dict[str, Any] = {"run": state.id, "round": state.round, "loss": None}
        if closed.end.state is not None:
            record |= global_metrics(self.trainer, self.pool, self.score, state, tests)
        if record["loss"] is None or not math.isfinite(record["loss"]):
            for name, value in closed.before.items():
                setattr(state, name, value)
            state.status = "diverged"
            record |= {"loss": None, **self.score.nothing}
        worked = {each.client: each.figures for each in closed.finished}
        record |= local_metrics(self.trainer, self.pool, self.score, state, worked, tests)
        record |= {"replies": len(closed.finished), "updated": closed.end.enough}
        record |= {"bytes_up": closed.up, "bytes_down": closed.down}
        state.judge(record[self.score.name])
        seconds, state.seconds = state.seconds + time.perf_counter() - begin, 0.0
        return {**record, "status": state.status}, seconds


class BatchesAhead:
    """The clients' batches; those of the next round are drawn while a GPU is busy with this one."""

    def __init__(self, trainer: RowTrainer) -> None:
        self.trainer = trainer
        self.drawn: dict[tuple[str, int, int], Batches] = {}

    def take(self, state: RunState, client: int) -> Batches:
        """The client's batches of this round."""
        batches = self.drawn.pop((state.id, client, state.round), None)
        return self._draw(state, client, state.round) if batches is None else batches

    def prepare(self, states: Sequence[RunState]) -> None:
        """Those of the round after this one, where work goes on elsewhere."""
        if self.trainer.device.type == "cpu":
            return
        self.drawn = {}
        for state in states:
            following = state.round + 1
            for client in state.run.participants(following) if following < state.run.rounds else ():
                self.drawn[state.id, client, following] = self._draw(state, client, following)

    def _draw(self, state: RunState, client: int, round: int) -> Batches:
        return draw_batches(state.run, client, round, state.train[client], self.trainer)


def choose(state: RunState) -> tuple[list[int], list[int]]:
    """The clients of this round, and those of them whose replies will not be lost."""
    run, round = state.run, state.round
    chosen = run.participants(round)
    if not run.dropout:
        return chosen, chosen
    lost = {
        k for k in chosen if numpy_generator(run.seed, "dropout", k, round).random() < run.dropout
    }
    return chosen, [k for k in chosen if k not in lost]


def shares_nothing(state: RunState) -> bool:
    """Whether this run's clients can train in threads: no file of memories, no generator in common.

    A method of the user's own might draw from torch's generator.
    """
    seeded = state.run.initial == "different" and state.round == 0
    methods = (state.run.algorithm, state.run.optimiser)
    ours = all(type(method).__module__.startswith("tacit.") for method in methods)
    return ours and not seeded and not state.stores


def with_lies(state: RunState, drafts: list[Draft]) -> list[Draft]:
    """The drafts, with what attackers send in place of theirs."""
    lying = torch.tensor([draft.client in state.attackers for draft in drafts])
    if not lying.any():
        return drafts
    attack = state.run.attackers
    blind = bool(state.run.wire) and state.run.wire[-1].summed  # nobody sees single messages
    lies = {}
    for name in rows_of(drafts[0].message):
        rows = stacked([draft.message[name] for draft in drafts])
        draw = generator(state.run.seed, "attack", name, state.round)
        honest = rows[~lying][:0] if blind else rows[~lying]
        lie = attack.lie(rows[lying], honest, draw)
        if blind and rows.isfinite().all() and not lie.isfinite().all():
            raise StudyError(
                f"{attack.name} makes no numbers where it sees nobody else's message, as behind a sum; if it needs"
                " them, declare sees_others = True"
            )
        lies[name] = rows.clone()
        lies[name][lying] = lie
    told = []
    for row, draft in enumerate(drafts):
        message = {**draft.message, **pick(lies, slice(row, row + 1))}
        told.append(replace(draft, message=message, honest=draft.client not in state.attackers))
    return told
