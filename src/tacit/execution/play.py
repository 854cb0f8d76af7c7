"""A block of runs, played from its start or its checkpoint to its end: the same wherever it happens.

What comes of it is a stream of messages made of plain values and bytes, which can go through a pipe or a cluster.
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
from tacit.records import checkpoint
from tacit.records.messages import BlockEnded, BlockSaved, Message, ModelTrained, RoundPlayed
from tacit.simulation.engine import Engine, find_engine
from tacit.study.tested_clients import tested_clients
from tacit.study.texts import plain
from tacit.study.user_code import Named, user_code_of

SPARING = 10  # times as long as a checkpoint takes passes before the next one


@dataclass(frozen=True)
class Task:
    """A block as whoever plays it gets it."""

    index: int
    runs: tuple[Named, ...]
    key: str  # of the study and its data, for checkpoints
    at_once: int | None  # rows that are trained together; None: as the device suggests
    every: float  # seconds between checkpoints, at least
    device: str = "cpu"
    exact: bool = False  # on a GPU, no TF32
    beside: int = 1  # clients that train side by side on a CPU
    saved: bytes | None = None  # where to go on
    partitions: Mapping[str, Partition] | None = (
        None  # divisions of the data that are known, by `division_key`
    )
    memories: Path | None = (
        None  # a folder for clients' memories, if checkpoints are written as soon as they are made
    )

    @property
    def ids(self) -> list[str]:
        """The runs' names."""
        return [id for id, _ in self.runs]


@dataclass(frozen=True)
class Failed:
    """Why a worker could not go on: the error's class, if it is one of ours, and its text."""

    kind: type[TacitError] | None
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failed:
        if isinstance(error, TacitError):
            return cls(type(error), str(error))
        return cls(None, f"in a worker:\n{''.join(traceback.format_exception(error))}")

    def error(self) -> Exception:
        """The same for whoever gave the work."""
        return (self.kind or RuntimeError)(self.text)


def play_block(
    task: Task, datasets: Mapping[str, Dataset], stopping: Callable[[], bool] = lambda: False
) -> Iterator[Message]:
    """Plays a block to its end or, once `stopping` says so, to the end of a round."""
    guests = user_code_of(task.runs)
    with own_code(guests):
        simulation = _restored(task, datasets)
    due = time.monotonic() + task.every
    while simulation.going:
        with own_code(guests):
            for record, seconds in simulation.play_round():
                yield RoundPlayed(record, seconds)
        stop = stopping()
        if simulation.going and (stop or time.monotonic() > due):
            start = time.monotonic()
            yield _saved(task, simulation)
            simulation.checkpointed()
            due = time.monotonic() + max(task.every, SPARING * (time.monotonic() - start))
        if stop and simulation.going:
            return
    yield from _conclude(task, simulation)


def packed(tasks: Sequence[Task], datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """The data that these blocks need elsewhere; of a table's own rows, only those that are public data."""
    runs = [run for task in tasks for _, run in task.runs]
    public = {str(plain(run.public)) for run in runs if run.public is not None}
    keys = dict.fromkeys([*(str(plain(run.dataset)) for run in runs), *public])
    return {
        key: datasets[key] if key in public else replace(datasets[key], frame=None) for key in keys
    }


def _restored(task: Task, datasets: Mapping[str, Dataset]) -> Engine:
    first = task.runs[0][1]
    data = datasets[str(plain(first.dataset))]
    options: Any = {"device": task.device, "at_once": task.at_once, "folder": task.memories}
    options |= {"tf32": not task.exact, "side_by_side": task.beside}
    options |= {"partitions": task.partitions}
    public = None if first.public is None else datasets[str(plain(first.public))]
    simulation = find_engine(first.engine)(task.runs, data, public, **options)
    known = checkpoint.decode(task.saved)["runs"] if task.saved else {}
    for state in simulation.states:
        if state.id in known:
            state.restore(known[state.id])
    return simulation


def _saved(task: Task, simulation: Engine) -> BlockSaved:
    states = dict(
        zip(
            [state.id for state in simulation.states],
            simulation.saved(portable=task.memories is None),
            strict=True,
        )
    )
    rounds = {state.id: state.round for state in simulation.states}
    return BlockSaved(rounds, checkpoint.block_state(task.key, states, done=False))


def _conclude(task: Task, simulation: Engine) -> Iterator[Message]:
    for state in simulation.states:
        yield ModelTrained(state.id, None, _model(simulation, state))
        tested = tested_clients(state.run, state.run.participants(state.round - 1))
        for client in tested if state.run.keeps_client_models else ():
            yield ModelTrained(state.id, client, _model(simulation, state, client))
    ended = {state.id: (state.round, state.status) for state in simulation.states}
    brief = {id: {"round": round, "status": status} for id, (round, status) in ended.items()}
    yield BlockEnded(ended, checkpoint.block_state(task.key, brief, done=True))
    simulation.discard()


def _model(simulation: Engine, state: Any, client: int | None = None) -> bytes:
    return checkpoint.encode(simulation.state_dict(state, client))
