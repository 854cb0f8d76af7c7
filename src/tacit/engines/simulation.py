"""The one round loop. Rows are clients x runs; on a CPU they are looped, on a GPU they form one batch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from tacit.core.rows import batch_key, count_bytes, pick
from tacit.core.seeds import derive
from tacit.core.vectors import Layout, pack
from tacit.data.datasets import Dataset
from tacit.data.public import align
from tacit.engines.clients import Reply, choose, personal_model, work
from tacit.engines.inbox import Inbox
from tacit.engines.metrics import Score, global_metrics, local_metrics
from tacit.engines.server import aggregate, pretrain, projected
from tacit.engines.state import RunState, broadcast, client_class, prepare
from tacit.engines.study import Run, plain
from tacit.federated.wire.stage import message_bytes
from tacit.training.gradients import Form, row_gradients


def group_runs(runs: Sequence[tuple[str, Run]]) -> list[list[tuple[str, Run]]]:
    """Runs whose clients do the same work up to float settings: their rows can share a batch."""
    groups: dict[str, list[tuple[str, Run]]] = {}
    for id, run in runs:
        owner = client_class(type(run.algorithm))
        keys = (batch_key(run.algorithm, owner), batch_key(run.optimiser, type(run.optimiser)))
        key = (keys, type(run.algorithm).sends, plain(run.model), plain(run.dataset), plain(run.public))
        groups.setdefault(str(key), []).append((id, run))
    return list(groups.values())


class Simulation:
    """Runs of one group, round by round. `form` and `block` (rows at a time) follow from the device unless given.

    `folder` takes the clients' memories where they are too many to hold.
    """

    def __init__(
        self,
        runs: Sequence[tuple[str, Run]],
        dataset: Dataset,
        public: Dataset | None = None,
        *,
        device: str = "cpu",
        form: Form | None = None,
        block: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.gpus = [] if self.device.type == "cpu" else [self.device]
        self.form: Form = form or ("vmap" if self.gpus else "loop")
        self.pool, self.module, self.states = prepare(runs, dataset, self.device)
        for state in self.states:
            state.folder = folder
        self.layout = Layout.of(self.module)
        self.shape, self.width, self.score = dataset.x.shape[1:], dataset.outputs, Score.of(dataset)
        self.gradient = row_gradients(self.module, self.form)
        draws = any(isinstance(part, _DropoutNd) for part in self.module.modules())
        self.public: tuple[Tensor, Tensor] | None = None
        if public is not None:
            x, y = align(public, dataset)
            self.public = x.to(self.device), y.to(self.device)
        for state in self.states:
            if state.run.pretraining:
                pretrain(self, state)
            state.server = projected(state.server, state.run.radius)
        self.block = block or (1 if self.form == "loop" or draws else 1_000_000)  # a row that draws is seeded alone

    @property
    def going(self) -> list[RunState]:
        return [state for state in self.states if state.status == "running"]

    def play_round(self) -> Iterator[tuple[dict[str, Any], float]]:
        """One round of every run that is still going: each one's record for the history, and its seconds."""
        going, chosen = self.going, {state.id: choose(state) for state in self.going}
        jobs = [(state, client) for state in going for client in chosen[state.id][1]]
        alone = self.block == 1
        inboxes = {state.id: Inbox(len(chosen[state.id][1]) if alone else None) for state in going}
        for first in range(0, len(jobs), self.block):
            block = jobs[first : first + self.block]
            start = time.perf_counter()
            for (state, _), reply in zip(block, work(self, block), strict=True):
                state.seconds += (time.perf_counter() - start) / len(block)
                if reply:
                    inboxes[state.id].take(reply)
        for state in going:
            yield self._conclude(state, inboxes.pop(state.id).replies, chosen[state.id][0])

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

    def _conclude(self, state: RunState, replies: list[Reply], chosen: list[int]) -> tuple[dict[str, Any], float]:
        """The server's side of the round, what came of it, and whether the run goes on."""
        start = time.perf_counter()
        buffers = count_bytes(pack(pick(state.buffers, None)))
        down = sum(count_bytes(broadcast(state, k)) + buffers for k in chosen)
        up = sum(message_bytes(reply.message, state.run.wire) for reply in replies)
        before = {name: getattr(state, name) for name in ("server", "buffers", "memory", "wire_memory")}
        missing = sorted(set(chosen) - {reply.client for reply in replies})
        counted = len(replies) + (len(missing) if state.run.missing == "zero" else 0)
        enough = bool(replies) and counted >= state.run.combiner.quorum
        finite = not enough or aggregate(self, state, replies, missing)
        state.round += 1
        record: dict[str, Any] = {"run": state.id, "round": state.round}
        record |= global_metrics(self, state) if finite else {"loss": None}
        if record["loss"] is None or not math.isfinite(record["loss"]):
            for name, value in before.items():
                setattr(state, name, value)
            state.status = "diverged"
            record |= {"loss": None, **self.score.nothing}
        record |= local_metrics(self, state, replies, chosen)
        record |= {"replies": len(replies), "updated": enough, "bytes_up": up, "bytes_down": down}
        self._judge(state, record[self.score.name])
        seconds, state.seconds = state.seconds + time.perf_counter() - start, 0.0
        return {**record, "status": state.status}, seconds

    def _judge(self, state: RunState, score: float | None) -> None:
        if state.status == "diverged" or score is None:
            return
        state.stale = 0 if score > state.best else state.stale + 1
        state.best = max(state.best, score)
        run = state.run
        if run.target_accuracy is not None and score >= run.target_accuracy:
            state.status = "target"
        elif run.patience is not None and state.stale >= run.patience:
            state.status = "patience"
        elif state.round >= run.rounds:
            state.status = "finished"
