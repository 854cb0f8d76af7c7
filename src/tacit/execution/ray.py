"""Blocks on a Ray cluster: an actor per CPU or GPU plays a block slice by slice, and this process asks for the next.

The data are put into the cluster's object store once. When a node dies, its blocks go on elsewhere from their last
checkpoints, which are here. Ray moves Python objects between its nodes by pickle, so a cluster must be one's own.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.core.errors import MissingDependencyError, StudyError
from tacit.core.events import Warned
from tacit.core.own_code import summarise
from tacit.core.version import __version__
from tacit.data.dataset import Dataset
from tacit.execution.devices import computing_with
from tacit.execution.plan import Plan
from tacit.execution.play import Failed, Task, packed, play_block
from tacit.records.messages import BlockEnded, Message
from tacit.records.recorder import Recorder
from tacit.training.allocator import keep_freed_memory

try:
    import ray
    from ray.exceptions import RayError
except ImportError:
    raise MissingDependencyError('Ray is not installed; run: pip install "tacit[ray]"') from None

SLICE = 1.0  # seconds of work per call
PATIENCE = 5.0  # seconds that workers have to end their round when the study is stopped
LONELY = 30.0  # seconds without any worker, after which the user is told
HERE = "ray"  # the cluster that this machine belongs to


class Player:
    """A worker: what Ray runs on a node."""

    def __init__(
        self, path: Sequence[str], data: Mapping[str, Mapping[str, Any]], threads: int | None
    ) -> None:
        sys.path += [place for place in path if place not in sys.path]
        keep_freed_memory()
        self.limits = computing_with(threads)
        self.limits.__enter__()  # for as long as this process lives
        self.datasets = {key: _unpacked(fields) for key, fields in data.items()}
        self.messages: Iterator[Message] = iter(())
        self.stopping = False

    def ready(self) -> dict[str, str]:
        """What it works with, once it is there."""
        return {"tacit": __version__, "torch": torch.__version__}

    def play(self, task: Task | None, seconds: float) -> list[Message | Failed]:
        """Begins with a block, if one is given, and goes on with it for that long."""
        end, found = time.monotonic() + seconds, list[Message | Failed]()
        try:
            if task is not None:
                self.messages = play_block(task, self.datasets, lambda: self.stopping)
            for message in self.messages:
                found.append(message)
                if time.monotonic() > end or isinstance(message, BlockEnded):
                    break
        except Exception as error:
            found.append(Failed.of(error))
        return found

    def stop(self) -> list[Message | Failed]:
        """Goes on to the end of the round."""
        self.stopping = True
        return self.play(None, float("inf"))


@dataclass(eq=False)
class RayWorker:
    actor: Any
    task: Task | None = None


def play(
    plan: Plan, tasks: Sequence[Task], datasets: Mapping[str, Dataset], recorder: Recorder
) -> None:
    """Plays all blocks; when interrupted, records what workers have done up to the end of their round."""
    with _connected(str(plan.on)):
        pool = RayPool(plan, tasks, datasets, recorder)
        try:
            pool.play()
        except KeyboardInterrupt:
            pool.wind_up()
            raise
        except (RayError, ConnectionError) as error:
            raise StudyError(
                f"lost the Ray cluster {plan.on}: {summarise(error)}; resume the study later"
            ) from error
        finally:
            pool.end()


class RayPool:
    """The workers of a study."""

    def __init__(
        self, plan: Plan, tasks: Sequence[Task], datasets: Mapping[str, Dataset], recorder: Recorder
    ) -> None:
        self.plan, self.recorder = plan, recorder
        kind = "CPU" if plan.devices == ("cpu",) else "GPU"
        room = int(ray.cluster_resources().get(kind, 0))
        if not room:
            remedy = "--device cpu" if kind == "GPU" else "another cluster"
            raise StudyError(f"the Ray cluster {plan.on} has no {kind}; use {remedy}")
        self.count = min(plan.workers or max(room, 1), len(tasks))
        steps = {block.index: block.steps for block in plan.blocks}
        slower = (
            1 if plan.workers else self.count
        )  # as the plan could not know how many would be saved in turn
        tasks = [replace(task, every=task.every * slower) for task in tasks]
        self.waiting = sorted(
            tasks, key=lambda task: steps[task.index]
        )  # the largest is taken first, from the end
        self.kind = ray.remote(num_cpus=1, num_gpus=int(kind == "GPU"), max_restarts=0)(Player)
        self.data = ray.put(
            {key: _as_arrays(data) for key, data in packed(tasks, datasets).items()}
        )
        self.workers: list[RayWorker] = []
        self.calls: dict[
            Any, RayWorker
        ] = {}  # what each has been asked, by Ray's reference to its answer

    def play(self) -> None:
        for _ in range(self.count):
            self._start()
        heard, told = time.monotonic(), False
        while self.waiting or any(worker.task for worker in self.calls.values()):
            for call in ray.wait(list(self.calls), timeout=1.0)[0]:
                heard = time.monotonic()
                self._listen(call)
            for worker in self._idle()[: len(self.waiting)]:
                self._hand_out(worker)
            if (
                not told
                and time.monotonic() - heard > LONELY
                and not any(one.task for one in self.calls.values())
            ):
                self.recorder.on_event(
                    Warned(f"the Ray cluster {self.plan.on} has no room for a worker; waiting")
                )
                told = True

    def wind_up(self) -> None:
        """Asks workers to stop after their round, and hears them out."""
        last = {worker.actor.stop.remote(): worker for worker in self.workers if worker.task}
        end = time.monotonic() + PATIENCE
        for call, worker in [
            *self.calls.items(),
            *last.items(),
        ]:  # each one's answers come in this order
            with suppress(RayError):
                if worker.task:
                    self._take(worker.task, ray.get(call, timeout=max(end - time.monotonic(), 0)))

    def end(self) -> None:
        for worker in self.workers:
            with suppress(RayError, ConnectionError):
                ray.kill(worker.actor)

    def _listen(self, call: Any) -> None:
        worker = self.calls.pop(call)
        try:
            answer = ray.get(call)
        except RayError as error:
            self._lost(worker, error)
            return
        if worker.task is None:
            self._check(answer)
        elif self._take(worker.task, answer):
            worker.task = None
        if worker.task is not None:
            self.calls[worker.actor.play.remote(None, SLICE)] = worker

    def _idle(self) -> list[RayWorker]:
        return [worker for worker in self.workers if worker not in self.calls.values()]

    def _take(self, task: Task, messages: Sequence[Message | Failed]) -> bool:
        """Records what a worker tells; whether its block has ended."""
        for message in messages:
            if isinstance(message, Failed):
                raise message.error()
            self.recorder.take(task.index, message)
        return any(isinstance(message, BlockEnded) for message in messages)

    def _hand_out(self, worker: RayWorker) -> None:
        worker.task = self.waiting.pop()
        task = replace(worker.task, saved=self.recorder.saved(worker.task.index))
        self.calls[worker.actor.play.remote(task, SLICE)] = worker

    def _lost(self, worker: RayWorker, error: RayError) -> None:
        """Another worker in place of one that is gone, wherever there is room; its block need not wait for it."""
        if "No module named 'tacit'" in str(error):
            raise StudyError(
                f"the nodes of {self.plan.on} lack tacit; run on each: pip install tacit=={__version__}"
            )
        self.workers.remove(worker)
        with suppress(RayError):
            ray.kill(worker.actor)
        if worker.task:
            self.waiting.append(worker.task)
        if self.waiting:
            why = f"a worker of the Ray cluster was lost ({type(error).__name__})"
            self.recorder.retry(self.waiting[-1].index, self.waiting[-1].ids, why)
            self._start()

    def _check(self, versions: Mapping[str, str]) -> None:
        if versions["tacit"] != __version__:
            raise StudyError(
                f"a node of {self.plan.on} has tacit {versions['tacit']}, this one {__version__}"
            )
        if versions["torch"] != torch.__version__:
            text = f"a node of {self.plan.on} has torch {versions['torch']}, this one {torch.__version__}"
            self.recorder.on_event(Warned(f"{text}: numbers may differ in their last digits"))

    def _start(self) -> None:
        worker = RayWorker(self.kind.remote(sys.path, self.data, self.plan.threads))
        self.workers.append(worker)
        self.calls[worker.actor.ready.remote()] = worker


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connects to the cluster, unless somebody has; leaves it as it was."""
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    with _own_signals():
        try:
            ray.init(
                "auto" if address == HERE else address,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            remedy = "start one with: ray start --head" if address == HERE else "check its address"
            raise StudyError(
                f"cannot use the Ray cluster {address}: {summarise(error)}; {remedy}"
            ) from error
    try:
        yield
    finally:
        with suppress(RayError, ConnectionError):
            ray.shutdown()


def _check_address(address: str) -> None:
    """Refuses at once what Ray would wait for."""
    if address == HERE:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        raise StudyError(f"on: expected ray, HOST:PORT or ray://HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise StudyError(
            f"there is no Ray cluster at {address}: {error.strerror or error}"
        ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; who called us knows better what to do then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_arrays(data: Dataset) -> dict[str, Any]:
    """The fields of a data set, tensors as arrays, which workers of a node share without a copy."""
    fields = {name: getattr(data, name) for name in data.__dataclass_fields__}
    return {
        name: value.numpy() if isinstance(value, torch.Tensor) else value
        for name, value in fields.items()
    }


def _unpacked(fields: Mapping[str, Any]) -> Dataset:
    """Undoes `_as_arrays`; nobody writes to what is shared, whatever torch fears."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made: dict[str, Any] = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
        }
    return Dataset(**made)
