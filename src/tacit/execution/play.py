"""Plays a block of runs from its start or its checkpoint to its end, the same way everywhere.

It gives a stream of messages made of plain values and bytes, which can go through a pipe or a
cluster.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.core.errors import TacitError
from tacit.core.own_code import own_code
from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.execution.plan import Plan
from tacit.records import checkpoint
from tacit.records.messages import (
    BlockEnded,
    BlockSaved,
    Message,
    ModelTrained,
    RoundPlayed,
    RunAssessed,
)
from tacit.simulation.engine import Engine, find_engine
from tacit.study.source_keys import source_key, source_keys
from tacit.study.tested_clients import tested_clients
from tacit.study.user_code import RunWithId, user_code_of

SPARING = 10  # times as long as a checkpoint takes passes before the next one


@dataclass(frozen=True)
class BlockTask:
    """A block of runs for whoever plays it."""

    index: int
    runs: tuple[RunWithId, ...]
    key: str  # of the study and its data, for checkpoints
    at_once: int | None  # rows that are trained together; None: as the device suggests
    every: float  # seconds between checkpoints, at least
    device: str = "cpu"
    exact: bool = False  # on a GPU, no TF32
    side_by_side: int = 1  # clients that train at a time on a CPU, one thread each
    saved: bytes | None = None  # the checkpoint to go on from
    metric: str | None = None  # that decides in the study, whatever would suit each data set
    partitions: Mapping[str, Partition] | None = None  # by `division_key`, where they are known
    memories: Path | None = None  # a folder for clients' memories, if checkpoints are written here

    @property
    def ids(self) -> list[str]:
        """The runs' names."""
        return [id for id, _ in self.runs]


@dataclass(frozen=True)
class Failed:
    """Why a worker could not go on: an error in plain values.

    `kind` is the error's class if it is one of tacit's. `system` is what an error of the operating
    system consists of, such as that of a full disk: its number, its text and the file.
    """

    kind: type[TacitError] | None
    text: str
    parameters: tuple[str, ...] = ()
    system: tuple[int, str, str | None] | None = None

    @classmethod
    def of(cls, error: Exception) -> Failed:
        if isinstance(error, TacitError):
            return cls(type(error), str(error), error.parameters)
        if isinstance(error, OSError) and error.errno is not None:
            file = None if error.filename is None else str(error.filename)
            return cls(None, str(error), system=(error.errno, error.strerror or "", file))
        trace = "".join(traceback.format_exception(error))
        return cls(None, f"in a worker:\n{trace}")

    def error(self) -> Exception:
        """The error again, in the process that gave the work."""
        if self.system is not None:
            return OSError(*self.system)
        if self.kind is None:
            return RuntimeError(self.text)
        return self.kind(self.text, parameters=self.parameters)


def play_block(
    task: BlockTask, datasets: Mapping[str, Dataset], stopping: Callable[[], bool] = lambda: False
) -> Iterator[Message]:
    """Plays a block to its end or, once `stopping` says so, to the end of a round."""
    guests = user_code_of(task.runs)
    with own_code(guests):
        simulation = _resumed(task, datasets)
    due = time.monotonic() + task.every
    while simulation.going:
        with own_code(guests):
            for record, seconds in simulation.play_round():
                yield RoundPlayed(record, seconds)
        stop = stopping()
        if not simulation.going:
            break
        if stop or time.monotonic() > due:
            start = time.monotonic()
            yield _saved(task, simulation)
            simulation.checkpointed()
            took = time.monotonic() - start
            due = time.monotonic() + max(task.every, SPARING * took)
        if stop:
            return
    yield from _end_block(task, simulation, guests)


def packed(tasks: Sequence[BlockTask], datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """The data that these blocks need elsewhere.

    The original table of a data set goes along only where its rows are public data.
    """
    runs = []
    for task in tasks:
        runs += [run for _, run in task.runs]
    public = {source_key(run.public) for run in runs if run.public is not None}
    needed = {}
    for key in source_keys(runs):
        data = datasets[key]
        if key not in public:
            data = replace(data, frame=None)
        needed[key] = data
    return needed


def smallest_first(tasks: Sequence[BlockTask], plan: Plan) -> list[BlockTask]:
    """The tasks in the order of their steps; `pop` takes the largest."""
    steps = {block.index: block.steps for block in plan.blocks}
    return sorted(tasks, key=lambda task: steps[task.index])


def _resumed(task: BlockTask, datasets: Mapping[str, Dataset]) -> Engine:
    """The engine that plays the block, at its start or at its checkpoint."""
    _, first = task.runs[0]
    data = datasets[source_key(first.dataset)]
    public = None if first.public is None else datasets[source_key(first.public)]
    simulation = find_engine(first.engine)(
        task.runs,
        data,
        public,
        device=task.device,
        at_once=task.at_once,
        folder=task.memories,
        tf32=not task.exact,
        metric=task.metric,
        side_by_side=task.side_by_side,
        partitions=task.partitions,
    )
    if task.saved:
        saved = checkpoint.decode(task.saved)["runs"]
        for state in simulation.states:
            if state.id in saved:
                state.restore(saved[state.id])
    return simulation


def _saved(task: BlockTask, simulation: Engine) -> BlockSaved:
    """A checkpoint; it is whole where the clients' memories are not on disk."""
    saved = simulation.saved(portable=task.memories is None)
    states = {}
    rounds = {}
    for state, values in zip(simulation.states, saved, strict=True):
        states[state.id] = values
        rounds[state.id] = state.round
    return BlockSaved(rounds, checkpoint.block_state(task.key, states, done=False))


def _end_block(task: BlockTask, simulation: Engine, guests: Sequence[str]) -> Iterator[Message]:
    """What was found out about all runs, their models, and the end of the block."""
    for state in simulation.states:
        if state.status != "diverged":
            with own_code(guests):
                findings = simulation.assess(state)
            yield RunAssessed(state.id, findings)
        yield ModelTrained(state.id, None, _model(simulation, state))
        if state.run.keeps_client_models:
            last_round = state.run.participants(state.round - 1)
            for client in tested_clients(state.run, last_round):
                yield ModelTrained(state.id, client, _model(simulation, state, client))
    ends = {}
    brief = {}
    for state in simulation.states:
        ends[state.id] = (state.round, state.status)
        brief[state.id] = {"round": state.round, "status": state.status}
    yield BlockEnded(ends, checkpoint.block_state(task.key, brief, done=True))
    simulation.discard()


def _model(simulation: Engine, state: Any, client: int | None = None) -> bytes:
    return checkpoint.encode(simulation.state_dict(state, client))
