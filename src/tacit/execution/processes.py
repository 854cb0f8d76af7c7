"""Blocks in worker processes of this machine, one per core or per GPU, handed out as workers get free.

Workers are spawned, never forked, since torch's threads and CUDA do not survive a fork. Each has a pipe of its own, so
that one that is killed can neither hold a lock nor spoil another's messages.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

import torch
import torch.multiprocessing

from tacit.core.own_code import own_code
from tacit.data.dataset import Dataset
from tacit.execution.devices import computing_with
from tacit.execution.plan import Plan
from tacit.execution.play import Failed, Task, packed, play_block
from tacit.records.messages import BlockEnded, Message
from tacit.records.recorder import Recorder
from tacit.training.allocator import keep_freed_memory

PATIENCE = 5.0  # seconds that workers have to end their round when the study is stopped
GONE = (
    EOFError,
    OSError,
)  # what the pipe of a process that has died raises, perhaps in the middle of a message
ORPHANED = (EOFError, BrokenPipeError, ConnectionResetError)  # what a worker's raises


@dataclass(eq=False)
class ProcessWorker:
    process: Any
    pipe: Connection
    device: str
    task: Task | None = None
    torn: bool = False  # whether a message was read in part, so that no more can be

    def hear(self) -> Any:
        """Its next message."""
        self.torn = True  # if an interrupt comes in the middle
        message = self.pipe.recv()
        self.torn = False
        return message


def play(
    plan: Plan, tasks: Sequence[Task], datasets: Mapping[str, Dataset], recorder: Recorder
) -> None:
    """Plays all blocks; when interrupted, records what workers have done up to the end of their round."""
    pool = ProcessPool(plan, tasks, datasets, recorder)
    try:
        pool.play()
    except KeyboardInterrupt:
        pool.wind_up()
        raise
    finally:
        pool.end()


class ProcessPool:
    """The worker processes of a study."""

    def __init__(
        self, plan: Plan, tasks: Sequence[Task], datasets: Mapping[str, Dataset], recorder: Recorder
    ) -> None:
        self.plan, self.recorder = plan, recorder
        steps = {block.index: block.steps for block in plan.blocks}
        self.waiting = sorted(
            tasks, key=lambda task: steps[task.index]
        )  # the largest is taken first, from the end
        self.datasets = {key: shared(data) for key, data in packed(tasks, datasets).items()}
        self.workers: list[ProcessWorker] = []

    def play(self) -> None:
        for k in range(self.plan.workers or 1):
            self._start(self.plan.devices[k % len(self.plan.devices)])
        while self.waiting or any(worker.task for worker in self.workers):
            for worker in self._ready(None):
                self._listen(worker)

    def wind_up(self) -> None:
        """Asks workers to stop after their round, and hears them out."""
        self.waiting.clear()
        for worker in self.workers:
            worker.task = None if worker.torn else worker.task
            with suppress(*GONE):
                worker.pipe.send(None)
        end = time.monotonic() + PATIENCE
        while any(worker.task for worker in self.workers) and (left := end - time.monotonic()) > 0:
            for worker in self._ready(left):
                self._hear_out(worker)

    def end(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()

    def _ready(self, seconds: float | None) -> list[ProcessWorker]:
        found = set(wait([worker.pipe for worker in self.workers if not worker.torn], seconds))
        return [worker for worker in self.workers if worker.pipe in found]

    def _hear_out(self, worker: ProcessWorker) -> None:
        try:
            message = worker.hear()
        except GONE:
            message, worker.task = None, None
            self.workers.remove(worker)
        if isinstance(message, Message) and worker.task:
            self.recorder.take(worker.task.index, message)
        else:  # it is ready for more, or has failed
            worker.task = None

    def _listen(self, worker: ProcessWorker) -> None:
        try:
            message = worker.hear()
        except GONE:
            self._replace(worker)
            return
        if message is None:  # it is ready for work
            self._hand_out(worker)
        elif isinstance(message, Failed):
            raise message.error()
        elif worker.task is not None:
            task = worker.task
            if isinstance(message, BlockEnded):
                worker.task = None
            self.recorder.take(task.index, message)

    def _hand_out(self, worker: ProcessWorker) -> None:
        """The next block, from where it was left; a worker that gets none waits for the others' failure."""
        if not self.waiting:
            return
        worker.task = self.waiting.pop()
        task = replace(
            worker.task, device=worker.device, saved=self.recorder.saved(worker.task.index)
        )
        with suppress(*GONE):  # a worker that has just died is noticed by its pipe
            worker.pipe.send(task)

    def _replace(self, worker: ProcessWorker) -> None:
        """Another process in place of one that has died; its block goes on from its checkpoint."""
        worker.process.join(PATIENCE)
        worker.pipe.close()
        self.workers.remove(worker)
        why = _cause(worker.process.exitcode)
        if worker.task:
            self.waiting.append(worker.task)
        if self.waiting:
            self.recorder.retry(self.waiting[-1].index, self.waiting[-1].ids, why)
            self._start(worker.device)

    def _start(self, device: str) -> None:
        context = torch.multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=work, args=(theirs, self.datasets, self.plan.threads), daemon=True
        )
        with _no_main():
            process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.workers.append(ProcessWorker(process, ours, device))


def work(pipe: Connection, datasets: Mapping[str, Dataset], threads: int | None) -> None:
    """A worker's life: ask for a block, play it, tell what comes of it."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent says what to do
    keep_freed_memory()
    with suppress(*ORPHANED), computing_with(threads):  # a parent that has gone needs nothing more
        try:
            pipe.send(None)
            while (task := _receive(pipe)) is not None:
                for message in play_block(task, datasets, stopping=pipe.poll):
                    pipe.send(message)
                pipe.send(None)
        except ORPHANED:
            raise
        except Exception as error:
            pipe.send(Failed.of(error))


def _receive(pipe: Connection) -> Any:
    with own_code():  # modules of the user's are imported here
        return pipe.recv()


def shared(data: Dataset) -> Dataset:
    """The data set, its tensors now in memory that processes share."""
    for value in vars(data).values():
        if isinstance(value, torch.Tensor):
            value.share_memory_()
    return data


@contextmanager
def _no_main() -> Iterator[None]:
    """A worker needs nothing of the script that called us, and importing it again would run all of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"a worker process was killed by signal {-code}" + (
            " (out of memory?)" if code == -9 else ""
        )
    return f"a worker process ended by itself with code {code}"
