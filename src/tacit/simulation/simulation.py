"""The one round loop. Rows are clients x runs; on a CPU they are looped, on a GPU they form one batch."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from tacit.core.rows import count_bytes, pick
from tacit.core.seeds import derive
from tacit.core.vectors import Layout, pack
from tacit.data.datasets import Dataset
from tacit.data.partition import Partition
from tacit.data.public import align
from tacit.federated.wire.stage import message_bytes
from tacit.rounds.client import Job, PlansAhead, Reply, Started, choose, personal_model, replies_of, start
from tacit.rounds.inbox import Inbox
from tacit.rounds.server import aggregate, pretrain, projected
from tacit.rounds.state import RunState, broadcast, prepare
from tacit.simulation.metrics import Score, Tested, global_metrics, local_metrics, test_runs
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Samples
from tacit.training.captured import CapturedTrainer
from tacit.training.evaluation import RowOutputs, row_outputs
from tacit.training.fused import PROGRAMS, FusedGradients, Network, read
from tacit.training.gradients import Form, GradientFunction, has_statistics, row_gradients


@dataclass(frozen=True)
class RoundEnd:
    """What the server did at the end of a round, and the state before, for a model that turns out to be none."""

    before: Mapping[str, Any]
    enough: bool  # replies to change the model
    finite: bool
    up: int  # bytes
    down: int


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """TF32 in matrix products and convolutions on a GPU, or not; as it was, afterwards."""
    places: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = tf32
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.allow_tf32 = value


def shares_nothing(state: RunState) -> bool:
    """Whether this run's clients can train in threads: no file of memories, no generator in common.

    A method of the user's own might draw from torch's generator.
    """
    seeded = state.run.initial == "different" and state.round == 0
    ours = all(type(part).__module__.startswith("tacit.") for part in (state.run.algorithm, state.run.optimiser))
    return ours and not seeded and not state.stores


def draws_numbers(module: nn.Module, x: Tensor) -> bool:
    """Whether the model draws while it trains, as dropout does: rows that draw are seeded one by one."""
    if any(isinstance(part, _DropoutNd) for part in module.modules()):
        return True
    gpus = [x.device] if x.is_cuda else []
    own = torch.cuda.default_generators[x.device.index or 0] if x.is_cuda else torch.default_generator
    with torch.random.fork_rng(devices=gpus):
        before = own.get_state()
        try:
            copy.deepcopy(module).train()(x)
        except Exception:  # of the user's own code, or of layers that want more samples: told when it is trained
            return False
        return not torch.equal(before, own.get_state())


class Simulation:
    """Runs of one group, round by round. `form` and `block` (rows at a time) follow from the device unless given.

    `folder` takes the clients' memories where they are too many to hold. `partitions` are divisions of the data that
    are known already, by `division_key`.
    """

    def __init__(
        self,
        runs: Sequence[tuple[str, HorizontalRun]],
        dataset: Dataset,
        public: Dataset | None = None,
        *,
        device: str = "cpu",
        form: Form | None = None,
        block: int | None = None,
        folder: Path | None = None,
        partitions: Mapping[str, Partition] | None = None,
        tf32: bool = True,
        side_by_side: int = 1,
    ) -> None:
        self.device = torch.device(device)
        self.gpus = [] if self.device.type == "cpu" else [self.device]
        self.form: Form = form or ("captured" if self.gpus else "loop")
        self.pool, self.module, self.states = prepare(runs, dataset, self.device, partitions)
        for state in self.states:
            state.folder = folder
        self.layout = Layout.of(self.module)
        self.shape, self.width, self.score = dataset.x.shape[1:], dataset.outputs, Score.of(dataset)
        draws = draws_numbers(self.module, self.pool.train.x[:2].to(self.device))
        self.gradient = row_gradients(self.module, "loop" if self.form == "loop" else "vmap")
        self.trainer: CapturedTrainer | None = None
        self.outputs_of_rows: RowOutputs | None = None
        self.plans = PlansAhead()
        self.side_by_side = side_by_side
        self.beside: SimpleQueue[GradientFunction] = SimpleQueue()
        if side_by_side > 1 and self.form == "loop" and not draws:
            for _ in range(side_by_side):
                self.beside.put(row_gradients(self.module))
        self.tf32 = tf32
        if self.form != "loop":
            with self.computing():
                self._batch_rows(captured=self.form == "captured" and not draws and not has_statistics(self.module))
        self.public: Samples | None = None
        if public is not None:
            x, y = align(public, dataset)
            self.public = Samples(x.to(self.device), y.to(self.device))
        for state in self.states:
            if state.run.pretraining:
                with self.computing():
                    pretrain(self, state)
            state.server = projected(state.server, state.run.radius)
        self.block = 1 if draws else min(block or (1 if self.form == "loop" else PROGRAMS), PROGRAMS)  # draws alone

    @property
    def going(self) -> list[RunState]:
        return [state for state in self.states if state.status == "running"]

    def play_round(self) -> Iterator[tuple[dict[str, Any], float]]:
        """One round of every run that is still going: each one's record for the history, and its seconds."""
        with self.computing():
            going, chosen = self.going, {state.id: choose(state) for state in self.going}
            replies = self.gather_replies([(state, client) for state in going for client in chosen[state.id][1]])
            ends = [self._aggregate(state, replies[state.id], chosen[state.id][0]) for state in going]
            tests = test_runs(self, [(state, chosen[state.id][0]) for state in going])
            records = [
                self._conclude(state, replies[state.id], end, test)
                for state, end, test in zip(going, ends, tests, strict=True)
            ]
        yield from records

    @contextmanager
    def computing(self) -> Iterator[None]:
        """On a GPU: kernels and graphs belong to the device that is current, and products are rounded as asked."""
        if not self.gpus:
            yield
            return
        with torch.cuda.device(self.device), precision(self.tf32):
            yield

    def gather_replies(self, jobs: list[Job]) -> dict[str, list[Reply]]:
        """Sets all clients to work, makes the next round's plans meanwhile, and waits."""
        sizes = Counter(state.id for state, _ in jobs)
        inboxes = {state.id: Inbox(sizes[state.id] if self.block == 1 else None) for state in self.going}
        blocks = [jobs[first : first + self.block] for first in range(0, len(jobs), self.block)]
        begin = time.perf_counter()
        for place, started in enumerate(self._start_all(blocks)):
            if self.trainer and place == len(blocks) - 1:
                self.plans.prepare(self.going)
            for (state, _), reply in zip(started.jobs, replies_of(started), strict=True):
                if reply:
                    inboxes[state.id].take(reply)
            begin, passed = time.perf_counter(), time.perf_counter() - begin
            for state, _ in started.jobs:
                state.seconds += passed / len(started.jobs)
        return {id: inbox.replies for id, inbox in inboxes.items()}

    def _start_all(self, blocks: list[list[Job]]) -> Iterator[Started]:
        """Sets one block to work after another or, where clients share nothing, several side by side."""
        if self.beside.empty() or not all(shares_nothing(state) for state in self.states):
            yield from (start(self, block) for block in blocks)
            return

        def work_beside(block: list[Job]) -> Started:
            gradient = self.beside.get()
            try:
                return start(self, block, gradient)
            finally:
                self.beside.put(gradient)

        with ThreadPoolExecutor(self.beside.qsize()) as pool:
            yield from pool.map(work_beside, blocks)

    def _batch_rows(self, *, captured: bool) -> None:
        """Many rows at once: the network's own kernels where it has any, and steps as CUDA graphs."""
        usable = self.gpus and captured and self.pool.train.x.dtype == torch.float32
        network = self._checked(read(self.module, self.shape)) if usable else None
        self.pool = self.pool.on(self.device, network, compact=captured)
        self.outputs_of_rows = row_outputs(copy.deepcopy(self.module))
        if network:
            self.gradient = FusedGradients(network)
            self.outputs_of_rows = network.answers
        if captured:
            self.trainer = CapturedTrainer(self.gradient, self.pool.train, capture=bool(self.gpus))

    def _checked(self, network: Network | None) -> Network | None:
        """The network, if it answers as the module does."""
        if network is None:
            return None
        x = self.pool.train.x[:2].to(self.device)
        w = self.layout.flatten(self.module)[None]
        with torch.no_grad():
            ours, wanted = network.outputs(w, network.pack(x)[None])[0], self.module.eval()(x)
        return network if torch.allclose(ours, wanted, rtol=1e-2, atol=5e-3) else None  # TF32 has three digits

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

    def restore(self, saved: Sequence[Mapping[str, Any]]) -> None:
        for state, one in zip(self.states, saved, strict=True):
            state.restore(one)

    def state_dict(self, state: RunState, client: int | None = None) -> dict[str, Tensor]:
        """The run's global model, or the one that a client uses, as torch saves models."""
        with self.computing():
            own = (state.server["x"], state.buffers) if client is None else personal_model(self, state, client)
        self.layout.load(self.module, *own)
        return {name: value.detach().cpu().clone() for name, value in self.module.state_dict().items()}

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """What the module, as it is loaded, answers. # (n, outputs)"""
        self.module.eval()
        return torch.cat([self.module(part) for part in x.split(1024)])

    @contextmanager
    def seeded(self, state: RunState, name: str, client: int) -> Iterator[None]:
        """For models that draw while they train, such as dropout: torch's own generator, seeded by name."""
        with torch.random.fork_rng(devices=self.gpus):
            seed = derive(state.run.seed, name, client, state.round)
            # torch.manual_seed also looks for devices that nobody uses, which costs more than a step of a small model
            torch.manual_seed(seed) if self.gpus else torch.default_generator.manual_seed(seed)
            yield

    def _aggregate(self, state: RunState, replies: list[Reply], chosen: list[int]) -> RoundEnd:
        """The server's side of the round."""
        begin = time.perf_counter()
        buffers = count_bytes(pack(pick(state.buffers, None)))
        down = sum(count_bytes(broadcast(state, k)) + buffers for k in chosen)
        up = sum(message_bytes(reply.message, state.run.wire) for reply in replies)
        before = {name: getattr(state, name) for name in ("server", "buffers", "memory", "wire_memory")}
        missing = sorted(set(chosen) - {reply.client for reply in replies})
        counted = len(replies) + (len(missing) if state.run.missing == "zero" else 0)
        enough = bool(replies) and counted >= state.run.combiner.quorum
        finite = not enough or aggregate(self, state, replies, missing)
        state.round += 1
        state.seconds += time.perf_counter() - begin
        return RoundEnd(before, enough, finite, up, down)

    def _conclude(
        self, state: RunState, replies: list[Reply], end: RoundEnd, tests: Tested
    ) -> tuple[dict[str, Any], float]:
        """What came of the round, and whether the run goes on."""
        begin = time.perf_counter()
        record: dict[str, Any] = {"run": state.id, "round": state.round}
        record |= global_metrics(self, state, tests) if end.finite else {"loss": None}
        if record["loss"] is None or not math.isfinite(record["loss"]):
            for name, value in end.before.items():
                setattr(state, name, value)
            state.status = "diverged"
            record |= {"loss": None, **self.score.nothing}
        record |= local_metrics(self, state, replies, tests)
        record |= {"replies": len(replies), "updated": end.enough, "bytes_up": end.up, "bytes_down": end.down}
        state.judge(record[self.score.name])
        seconds, state.seconds = state.seconds + time.perf_counter() - begin, 0.0
        return {**record, "status": state.status}, seconds
