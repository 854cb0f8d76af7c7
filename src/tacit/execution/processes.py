"""Blocks in worker processes of this machine, one per core or per GPU.

Workers get the next block as soon as they are free. They are spawned, never forked, since torch's
threads and CUDA do not survive a fork. Each has a pipe of its own, so that one that is killed can
neither hold a lock nor spoil another's messages.
"""

from __future__ import annotations

import os
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
from tacit.execution.play import BlockTask, Failed, packed, play_block, smallest_first
from tacit.records.messages import BlockEnded, Message
from tacit.records.recorder import Recorder
from tacit.training.allocator import keep_freed_memory

SAFE_PATH = "PYTHONSAFEPATH"
OURS = "tacit"  # its value where we have set it
PATIENCE = 5.0  # seconds that workers have to end their round when the study is stopped

# What a pipe raises when the process at its other end has died, perhaps in the middle of a message:
GONE = (EOFError, OSError)  # in this process
ORPHANED = (EOFError, BrokenPipeError, ConnectionResetError)  # in a worker


@dataclass(eq=False)
class ProcessWorker:
    """A worker process as this process sees it."""

    process: Any
    pipe: Connection
    device: str
    task: BlockTask | None = None
    torn: bool = False  # whether a message was read in part, so that no more can be read

    def hear(self) -> Any:
        """Its next message."""
        self.torn = True  # if an interrupt comes in the middle
        message = self.pipe.recv()
        self.torn = False
        return message


def play(
    plan: Plan, tasks: Sequence[BlockTask], datasets: Mapping[str, Dataset], recorder: Recorder
) -> None:
    """Plays all blocks. After an interrupt, workers end their round, which is recorded."""
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
        self,
        plan: Plan,
        tasks: Sequence[BlockTask],
        datasets: Mapping[str, Dataset],
        recorder: Recorder,
    ) -> None:
        self.plan = plan
        self.recorder = recorder
        self.waiting = smallest_first(tasks, plan)  # workers take from the end
        self.datasets = {key: shared(data) for key, data in packed(tasks, datasets).items()}
        self.workers: list[ProcessWorker] = []

    def play(self) -> None:
        """Starts the workers, and listens to them until all blocks have ended."""
        devices = self.plan.devices
        for number in range(self.plan.workers or 1):
            self._start(devices[number % len(devices)])
        while self.waiting or self._busy():
            for worker in self._ready(None):
                self._listen(worker)

    def wind_up(self) -> None:
        """Asks workers to stop after their round, and records what they still send."""
        self.waiting.clear()
        for worker in self.workers:
            if worker.torn:
                worker.task = None
            with suppress(*GONE):
                worker.pipe.send(None)
        end = time.monotonic() + PATIENCE
        left = PATIENCE
        while self._busy() and left > 0:
            for worker in self._ready(left):
                self._hear_out(worker)
            left = end - time.monotonic()

    def end(self) -> None:
        """Ends all workers, by force if need be."""
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()

    def _busy(self) -> bool:
        return any(worker.task for worker in self.workers)

    def _ready(self, seconds: float | None) -> list[ProcessWorker]:
        """The workers that have sent something, after at most so many seconds."""
        pipes = [worker.pipe for worker in self.workers if not worker.torn]
        ready = set(wait(pipes, seconds))
        return [worker for worker in self.workers if worker.pipe in ready]

    def _hear_out(self, worker: ProcessWorker) -> None:
        """Records a message of a worker that was asked to stop."""
        try:
            message = worker.hear()
        except GONE:
            message = None
            worker.task = None
            self.workers.remove(worker)
        if isinstance(message, Message) and worker.task:
            self.recorder.take(worker.task.index, message)
        else:  # it is ready for more, or has failed
            worker.task = None

    def _listen(self, worker: ProcessWorker) -> None:
        """Does what the worker's next message asks for."""
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
        """Gives the next block, from its checkpoint.

        A worker that gets none stays, in case another one dies and leaves its block.
        """
        if not self.waiting:
            return
        worker.task = self.waiting.pop()
        saved = self.recorder.saved(worker.task.index)
        task = replace(worker.task, device=worker.device, saved=saved)
        with suppress(*GONE):  # a worker that has just died is noticed by its pipe
            worker.pipe.send(task)

    def _replace(self, worker: ProcessWorker) -> None:
        """Another process in place of one that has died; its block goes on from its checkpoint."""
        worker.process.join(PATIENCE)
        worker.pipe.close()
        self.workers.remove(worker)
        if worker.task:
            self.waiting.append(worker.task)
        if self.waiting:
            task = self.waiting[-1]
            self.recorder.retry(task.index, task.ids, _cause(worker.process.exitcode))
            self._start(worker.device)

    def _start(self, device: str) -> None:
        context = torch.multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.datasets, self.plan.threads)
        process = context.Process(target=work, args=arguments, daemon=True)
        with _no_main(), _safe_path():
            process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.workers.append(ProcessWorker(process, ours, device))


def work(pipe: Connection, datasets: Mapping[str, Dataset], threads: int | None) -> None:
    """A worker's life: ask for a block, play it, send what comes of it."""
    # Ctrl-C reaches the whole group of processes; the parent says what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]
    keep_freed_memory()
    with suppress(*ORPHANED), computing_with(threads):  # a parent that has gone needs nothing more
        try:
            _play_blocks(pipe, datasets)
        except ORPHANED:
            raise
        except Exception as error:
            pipe.send(Failed.of(error))


def _play_blocks(pipe: Connection, datasets: Mapping[str, Dataset]) -> None:
    """Plays block after block, until there is none; None asks for the next one."""
    pipe.send(None)
    while True:
        task = _receive(pipe)
        if task is None:
            return
        for message in play_block(task, datasets, stopping=pipe.poll):
            pipe.send(message)
        pipe.send(None)


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
    """Hides the script that called us from a worker, which would import and so run all of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _safe_path() -> Iterator[None]:
    """Has processes that are started not look for modules in the current folder first.

    They would do so until they have got our own path, which is after many imports.
    """
    if SAFE_PATH in os.environ:
        yield
        return
    os.environ[SAFE_PATH] = OURS
    try:
        yield
    finally:
        del os.environ[SAFE_PATH]


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"a worker process ended by itself with code {code}"
    hint = " (out of memory?)" if code == -9 else ""
    return f"a worker process was killed by signal {-code}{hint}"
