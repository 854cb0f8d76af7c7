"""The one round loop. Rows are clients x runs; on a CPU they are looped, on a GPU they form one batch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, batch_key, columns, count_bytes, join, pick, replaced
from tacit.core.seeds import derive, generator, numpy_generator
from tacit.core.vectors import Layout, pack, unpack
from tacit.data.datasets import Dataset
from tacit.engines.metrics import global_metrics, local_metrics, losses_of_updates
from tacit.engines.state import RunState, broadcast, client_class, client_view, memory_of, prepare
from tacit.engines.study import Run, plain
from tacit.federated.algorithm import Algorithm
from tacit.federated.cohort import Cohort, in_order
from tacit.models.model import make_module
from tacit.training.batches import gather, plan_epochs
from tacit.training.gradients import Form, row_gradients
from tacit.training.trainer import Block, Work, train

Job = tuple[RunState, int]  # a run's client


@dataclass(frozen=True)
class Reply:
    """What a client gives back after its local work; every tensor has one row."""

    client: int
    message: Rows
    memory: Rows
    samples: Tensor
    steps: Tensor
    loss: Tensor
    accuracy: Tensor


def group_runs(runs: Sequence[tuple[str, Run]]) -> list[list[tuple[str, Run]]]:
    """Runs whose clients do the same work up to float settings: their rows can share a batch."""
    groups: dict[str, list[tuple[str, Run]]] = {}
    for id, run in runs:
        owner = client_class(type(run.algorithm))
        keys = (batch_key(run.algorithm, owner), batch_key(run.optimiser, type(run.optimiser)))
        key = (keys, type(run.algorithm).sends, plain(run.model), plain(run.dataset))
        groups.setdefault(str(key), []).append((id, run))
    return list(groups.values())


class Simulation:
    """Runs of one group, round by round. `form` and `block` (rows at a time) follow from the device unless given."""

    def __init__(
        self,
        runs: Sequence[tuple[str, Run]],
        dataset: Dataset,
        *,
        device: str = "cpu",
        form: Form | None = None,
        block: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.gpus = [] if self.device.type == "cpu" else [self.device]
        self.form: Form = form or ("vmap" if self.gpus else "loop")
        self.pool, self.module, self.states = prepare(runs, dataset, self.device)
        self.layout = Layout.of(self.module)
        self.shape, self.classes = dataset.x.shape[1:], dataset.classes
        self.gradient = row_gradients(self.module, self.form)
        draws = any(isinstance(part, _DropoutNd) for part in self.module.modules())
        self.block = block or (1 if self.form == "loop" or draws else 1_000_000)  # a row that draws is seeded alone

    @property
    def going(self) -> list[RunState]:
        return [state for state in self.states if state.status == "running"]

    def play_round(self) -> Iterator[tuple[dict[str, Any], float]]:
        """One round of every run that is still going: each one's record for the history, and its seconds."""
        going = self.going
        jobs = [(state, client) for state in going for client in self._chosen(state)]
        replies: dict[str, list[Reply]] = {state.id: [] for state in going}
        for first in range(0, len(jobs), self.block):
            block = jobs[first : first + self.block]
            start = time.perf_counter()
            for (state, _), reply in zip(block, self._work(block), strict=True):
                state.seconds += (time.perf_counter() - start) / len(block)
                if reply:
                    replies[state.id].append(reply)
        for state in going:
            chosen = sum(job[0] is state for job in jobs)
            yield self._conclude(state, replies[state.id], chosen)

    def saved(self) -> list[dict[str, Any]]:
        return [state.saved() for state in self.states]

    def restore(self, saved: Sequence[Mapping[str, Any]]) -> None:
        for state, one in zip(self.states, saved, strict=True):
            state.restore(one)

    def state_dict(self, state: RunState) -> dict[str, Tensor]:
        """The run's global model, as torch saves models."""
        self.layout.load(self.module, state.server["x"], state.buffers)
        return {name: value.detach().cpu().clone() for name, value in self.module.state_dict().items()}

    def _chosen(self, state: RunState) -> list[int]:
        rng = numpy_generator(state.run.seed, "selection", state.round)
        return state.run.selection.choose(state.round, state.run.clients, rng)

    def _work(self, jobs: Sequence[Job]) -> list[Reply | None]:
        """The local work of these clients; one without a step gives no reply."""
        states = [state for state, _ in jobs]
        sent = join([broadcast(state) for state in states])
        mine = join([memory_of(state, client) for state, client in jobs])
        view = client_view(states, sent["x"])
        w, mine, begun = view.begin(sent, mine)
        w = join([self._start(job, w[k : k + 1]) for k, job in enumerate(jobs)])
        optimiser: Any = columns([state.run.optimiser for state in states], type(states[0].run.optimiser), w)
        factors = [[state.run.schedule.factor_at(state.round)] for state in states]
        optimiser = replaced(optimiser, lr=optimiser.lr * w.new_tensor(factors))
        buffers = join([pick(state.buffers, None) for state in states])
        samples = w.new_tensor([[len(state.train[client])] for state, client in jobs])
        zero = torch.zeros_like(samples)
        with torch.random.fork_rng(devices=self.gpus):  # for models that draw while they train, such as dropout
            torch.manual_seed(derive(states[0].run.seed, "training", jobs[0][1], states[0].round))
            full = self._full_gradients(jobs, sent["x"], buffers) if view.needs_full_gradient else None
            work = Work(zero, optimiser.lr, samples, optimiser, optimiser.init(w) if begun is None else begun, full)
            block = Block(w, work, view, sent, mine, buffers, loss=zero, hits=zero, seen=zero)
            done = train(block, [self._plan(job) for job in jobs], self.pool.x, self.pool.y, self.gradient)
        return self._replies(jobs, done, view)

    def _replies(self, jobs: Sequence[Job], done: Block, view: Algorithm) -> list[Reply | None]:
        message, memory = view.finish(done.w, done.sent, done.mine, done.work)
        if taken := {"buffers", "counters"} & message.keys():
            raise StudyError(f"a message has no entry {taken.pop()!r} of its own: that name is the model's buffers'")
        loss, accuracy = done.loss / done.seen, done.hits / done.seen
        steps, samples = done.work.steps, done.work.samples
        together = Reply(-1, {**message, **pack(done.buffers)}, memory, samples, steps, loss, accuracy)
        alone = [pick(together, slice(k, k + 1)) for k in range(len(jobs))]
        return [
            replace(reply, client=client) if reply.steps else None
            for reply, (_, client) in zip(alone, jobs, strict=True)
        ]

    def _plan(self, job: Job) -> Any:
        state, client = job
        run, order = state.run, generator(state.run.seed, "batches", client, state.round)
        return plan_epochs(state.train[client], run.epochs_of(client), run.batch_size_of(client), order)

    def _start(self, job: Job, w: Tensor) -> Tensor:
        """Where the client begins: at its own random weights in the first round, if the study wants different ones."""
        state, client = job
        if state.run.initial != "different" or state.round > 0:
            return w
        module = make_module(state.run.model, self.shape, self.classes, state.run.seed, "client", client)
        return self.layout.flatten(module).to(w)[None]

    def _full_gradients(self, jobs: Sequence[Job], x: Tensor, buffers: Rows) -> Tensor:
        batch = gather(self.pool.x, self.pool.y, [state.train[client] for state, client in jobs])
        return self.gradient(x, buffers, batch).g

    def _conclude(self, state: RunState, replies: list[Reply], chosen: int) -> tuple[dict[str, Any], float]:
        """The server's side of the round, what came of it, and whether the run goes on."""
        start = time.perf_counter()
        down = chosen * (count_bytes(broadcast(state)) + count_bytes(pack(pick(state.buffers, None))))
        before = (state.server, state.buffers, state.memory)
        finite = not replies or self._aggregate(state, replies)
        state.round += 1
        record: dict[str, Any] = {"run": state.id, "round": state.round}
        record |= global_metrics(self, state) if finite else {"loss": None}
        if record["loss"] is None or not math.isfinite(record["loss"]):
            state.server, state.buffers, state.memory = before
            state.status = "diverged"
            record |= {"loss": None, "accuracy": None}
        record |= local_metrics(self, state, replies)
        record |= {"bytes_up": sum(count_bytes(reply.message) for reply in replies), "bytes_down": down}
        self._judge(state, record["accuracy"])
        seconds, state.seconds = state.seconds + time.perf_counter() - start, 0.0
        return {**record, "status": state.status}, seconds

    def _aggregate(self, state: RunState, replies: list[Reply]) -> bool:
        """Commits the server's next state and the memories of those who replied; False if it is not finite."""
        algorithm = state.run.algorithm
        cohort = self._cohort(state, replies)
        server = algorithm.aggregate(state.server, cohort)
        if not isinstance(server, Mapping) or getattr(server.get("x"), "shape", None) != state.initial.shape:
            raise StudyError(f"{algorithm.name}.aggregate must return the server's state, with x of {self.layout.size}")
        packed = {name: rows for name, rows in cohort.messages.items() if name in ("buffers", "counters")}
        entries = {name: cohort.mean(name) if name == "buffers" else rows[0] for name, rows in packed.items()}
        buffers = unpack(entries, state.buffers)
        if not all(bool(torch.isfinite(torch.as_tensor(part)).all()) for part in [*server.values(), *buffers.values()]):
            return False
        state.server, state.buffers = server, buffers
        state.memory = state.memory | {reply.client: reply.memory for reply in replies if reply.memory}
        return True

    def _cohort(self, state: RunState, replies: list[Reply]) -> Cohort:
        columns_ = [join([getattr(reply, name) for reply in replies]) for name in ("samples", "steps", "loss")]
        messages, ids, (samples, steps, loss) = in_order(
            join([reply.message for reply in replies]), [reply.client for reply in replies], *columns_
        )
        return Cohort(
            messages=messages,
            ids=ids,
            samples=samples,
            steps=steps,
            population=state.run.clients,
            combiner=state.run.combiner,
            weighting=state.run.algorithm.weights,
            client_losses=loss,
            server_loss=losses_of_updates(self, state) if len(state.sample) else None,
            needs_rows=state.run.algorithm.needs_rows,
        )

    def _judge(self, state: RunState, accuracy: float | None) -> None:
        if state.status == "diverged" or accuracy is None:
            return
        state.stale = 0 if accuracy > state.best else state.stale + 1
        state.best = max(state.best, accuracy)
        run = state.run
        if run.target_accuracy is not None and accuracy >= run.target_accuracy:
            state.status = "target"
        elif run.patience is not None and state.stale >= run.patience:
            state.status = "patience"
        elif state.round >= run.rounds:
            state.status = "finished"
