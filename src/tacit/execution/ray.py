"""Blocks on a Ray cluster: an actor per CPU or GPU plays a block, a short time with every call.

The data are put into the cluster's object store once. When a node dies, its blocks go on elsewhere
from their last checkpoints, which are here. Ray moves Python objects between its nodes by pickle,
so use a cluster only if you trust everybody who can reach it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
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
from tacit.execution.play import BlockTask, Failed, packed, play_block, smallest_first
from tacit.records.messages import BlockEnded, Message
from tacit.records.recorder import Recorder
from tacit.training.allocator import keep_freed_memory

try:
    import ray
    from ray.exceptions import RayError
except ImportError:
    raise MissingDependencyError('Ray is not installed; run: pip install "tacit[ray]"') from None

SLICE = 1.0  # seconds of work per call
FAREWELL = 5.0  # seconds for the calls of killed workers to end
PATIENCE = 5.0  # seconds that workers have to end their round when the study is stopped
LONELY = 30.0  # seconds without any worker, after which the user is told
HERE = "ray"  # the cluster that this machine belongs to


class Player:
    """A worker on a node of the cluster: what Ray runs there."""

    def __init__(
        self, path: Sequence[str], data: Mapping[str, Mapping[str, Any]], threads: int | None
    ) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        keep_freed_memory()
        self.limits = computing_with(threads)
        self.limits.__enter__()  # for as long as this process lives
        self.datasets = {key: _from_arrays(fields) for key, fields in data.items()}
        self.messages: Iterator[Message] = iter(())
        self.stopping = False

    def ready(self) -> dict[str, str]:
        """The versions that it works with; the answer says that it is there."""
        return {"tacit": __version__, "torch": torch.__version__}

    def play(self, task: BlockTask | None, seconds: float) -> list[Message | Failed]:
        """Begins with a block, if it gets one, and plays for that long."""
        end = time.monotonic() + seconds
        messages: list[Message | Failed] = []
        try:
            if task is not None:
                self.messages = play_block(task, self.datasets, lambda: self.stopping)
            for message in self.messages:
                messages.append(message)
                if time.monotonic() > end or isinstance(message, BlockEnded):
                    break
        except Exception as error:
            messages.append(Failed.of(error))
        return messages

    def stop(self) -> list[Message | Failed]:
        """Plays to the end of the round."""
        self.stopping = True
        return self.play(None, float("inf"))


@dataclass(eq=False)
class RayWorker:
    """A worker as this process sees it."""

    actor: Any
    task: BlockTask | None = None


def play(
    plan: Plan, tasks: Sequence[BlockTask], datasets: Mapping[str, Dataset], recorder: Recorder
) -> None:
    """Plays all blocks. After an interrupt, workers end their round, which is recorded."""
    with _connected(str(plan.on)):
        pool = RayPool(plan, tasks, datasets, recorder)
        try:
            pool.play()
        except KeyboardInterrupt:
            pool.wind_up()
            raise
        except (RayError, ConnectionError) as error:
            text = f"lost the Ray cluster {plan.on}: {summarise(error)}; resume the study later"
            raise StudyError(text) from error
        finally:
            pool.end()


class RayPool:
    """The workers of a study on the cluster."""

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[BlockTask],
        datasets: Mapping[str, Dataset],
        recorder: Recorder,
    ) -> None:
        self.plan = plan
        self.recorder = recorder
        on_gpus = plan.devices != ("cpu",)
        room = _room(str(plan.on), on_gpus)
        self.count = min(plan.workers or room, len(tasks))
        if plan.workers is None:  # the plan could not know how many workers would be saved in turn
            tasks = [replace(task, every=task.every * self.count) for task in tasks]
        self.waiting = smallest_first(tasks, plan)  # workers take from the end
        self.player = ray.remote(num_cpus=1, num_gpus=int(on_gpus), max_restarts=0)(Player)
        arrays = {key: _as_arrays(data) for key, data in packed(tasks, datasets).items()}
        self.data = ray.put(arrays)
        self.workers: list[RayWorker] = []
        self.calls: dict[Any, RayWorker] = {}  # by Ray's reference to the answer that is awaited

    def play(self) -> None:
        """Starts the workers, and takes their answers until all blocks have ended."""
        for _ in range(self.count):
            self._start()
        heard = time.monotonic()
        warned = False
        while self.waiting or self._busy():
            answered, _ = ray.wait(list(self.calls), timeout=1.0)
            for call in answered:
                heard = time.monotonic()
                self._listen(call)
            for worker in self._idle()[: len(self.waiting)]:
                self._hand_out(worker)
            lonely = time.monotonic() - heard > LONELY and not self._busy()
            if lonely and not warned:
                text = f"the Ray cluster {self.plan.on} has no room for a worker; waiting"
                self.recorder.on_event(Warned(text))
                warned = True

    def wind_up(self) -> None:
        """Asks workers to stop after their round, and records what they still send."""
        busy = [worker for worker in self.workers if worker.task]
        last = {worker.actor.stop.remote(): worker for worker in busy}
        end = time.monotonic() + PATIENCE
        calls = [*self.calls.items(), *last.items()]  # in the order of each worker's answers
        for call, worker in calls:
            if worker.task is None:
                continue
            left = max(end - time.monotonic(), 0)
            with suppress(RayError):
                self._take(worker.task, ray.get(call, timeout=left))

    def end(self) -> None:
        """Ends all workers."""
        for worker in self.workers:
            with suppress(RayError, ConnectionError):
                ray.kill(worker.actor)
        # Ray may crash if we leave it while calls of killed workers are on their way.
        calls = list(self.calls)
        if calls:
            with suppress(RayError, ConnectionError):
                ray.wait(calls, num_returns=len(calls), timeout=FAREWELL)

    def _busy(self) -> bool:
        return any(worker.task for worker in self.calls.values())

    def _idle(self) -> list[RayWorker]:
        return [worker for worker in self.workers if worker not in self.calls.values()]

    def _listen(self, call: Any) -> None:
        """Takes a worker's answer, and has it go on with its block if that has not ended."""
        worker = self.calls.pop(call)
        try:
            answer = ray.get(call)
        except RayError as error:
            self._replace(worker, error)
            return
        if worker.task is None:
            self._check(answer)
        elif self._take(worker.task, answer):
            worker.task = None
        if worker.task is not None:
            self.calls[worker.actor.play.remote(None, SLICE)] = worker

    def _take(self, task: BlockTask, messages: Sequence[Message | Failed]) -> bool:
        """Records a worker's messages, and says whether its block has ended."""
        for message in messages:
            if isinstance(message, Failed):
                raise message.error()
            self.recorder.take(task.index, message)
        return any(isinstance(message, BlockEnded) for message in messages)

    def _hand_out(self, worker: RayWorker) -> None:
        """Gives the next block, from its checkpoint."""
        worker.task = self.waiting.pop()
        task = replace(worker.task, saved=self.recorder.saved(worker.task.index))
        self.calls[worker.actor.play.remote(task, SLICE)] = worker

    def _replace(self, worker: RayWorker, error: RayError) -> None:
        """Another worker in place of one that is gone, wherever there is room for it.

        The block of the lost one goes to whichever worker is free first.
        """
        if "No module named 'tacit'" in str(error):
            remedy = f"run on each: pip install tacit=={__version__}"
            raise StudyError(f"the nodes of {self.plan.on} lack tacit; {remedy}")
        self.workers.remove(worker)
        with suppress(RayError):
            ray.kill(worker.actor)
        if worker.task:
            self.waiting.append(worker.task)
        if self.waiting:
            task = self.waiting[-1]
            why = f"a worker of the Ray cluster was lost ({type(error).__name__})"
            self.recorder.retry(task.index, task.ids, why)
            self._start()

    def _check(self, versions: Mapping[str, str]) -> None:
        """Refuses a node with another version of tacit; warns of one with another torch."""
        node = f"a node of {self.plan.on}"
        if versions["tacit"] != __version__:
            raise StudyError(f"{node} has tacit {versions['tacit']}, this one {__version__}")
        if versions["torch"] != torch.__version__:
            text = f"{node} has torch {versions['torch']}, this one {torch.__version__}"
            self.recorder.on_event(Warned(f"{text}: numbers may differ in their last digits"))

    def _start(self) -> None:
        path = [folder or os.getcwd() for folder in sys.path]
        worker = RayWorker(self.player.remote(path, self.data, self.plan.threads))
        self.workers.append(worker)
        self.calls[worker.actor.ready.remote()] = worker


def _room(address: str, on_gpus: bool) -> int:
    """How many workers the cluster has room for; refuses a cluster that has none."""
    kind = "GPU" if on_gpus else "CPU"
    room = int(ray.cluster_resources().get(kind, 0))
    if room:
        return room
    if on_gpus:
        text = f"the Ray cluster {address} has no GPU; use the device cpu"
        raise StudyError(text, parameters=("device",))
    raise StudyError(f"the Ray cluster {address} has no CPU; use another", parameters=("on",))


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connects to the cluster, and leaves it at the end, unless this process was connected."""
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    cluster = "auto" if address == HERE else address
    with _unchanged_signals():
        try:
            with chdir(sys.prefix):  # Ray has workers look for modules in this folder first
                ray.init(cluster, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            remedy = "check its address"
            if address == HERE:
                remedy = "start one with: ray start --head"
            text = f"cannot use the Ray cluster {address}: {summarise(error)}; {remedy}"
            raise StudyError(text, parameters=("on",)) from error
    try:
        yield
    finally:
        with suppress(RayError, ConnectionError):
            ray.shutdown()


def _check_address(address: str) -> None:
    """Refuses at once an address for which Ray would wait a long time."""
    if address == HERE:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        text = f"on: expected ray, HOST:PORT or ray://HOST:PORT, got {address!r}"
        raise StudyError(text, parameters=("on",))
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        text = f"there is no Ray cluster at {address}: {error.strerror or error}"
        raise StudyError(text, parameters=("on",)) from None


@contextmanager
def _unchanged_signals() -> Iterator[None]:
    """Puts back what SIGTERM does, which Ray changes; whoever called us has decided that."""
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
    fields = {}
    for name in data.__dataclass_fields__:
        value = getattr(data, name)
        fields[name] = value.numpy() if isinstance(value, torch.Tensor) else value
    return fields


def _from_arrays(fields: Mapping[str, Any]) -> Dataset:
    """Undoes `_as_arrays`."""
    values: dict[str, Any] = {}
    with warnings.catch_warnings():
        # torch warns that shared arrays are read-only; nobody writes to them
        warnings.simplefilter("ignore", UserWarning)
        for name, value in fields.items():
            values[name] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    return Dataset(**values)
