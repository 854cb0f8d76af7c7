"""Rounds of fusion: every client trains a network of its own, of its own width, and the server makes one of them.

With more than one round, each client goes on from its own neurons, with the weights that the fused network gave them.
Beside the fused network three others are tested: the clients' own, their plain average, and their ensemble.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.core.errors import StudyError
from tacit.core.seeds import numpy_generator
from tacit.data.dataset import Dataset
from tacit.federated.fusion.average import Average
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Fused
from tacit.federated.fusion.matching import Floats
from tacit.models.model import Mlp, Model
from tacit.rounds.client import Draft, Memory
from tacit.simulation.engine import Engine
from tacit.simulation.fusion_baselines import Judge
from tacit.simulation.kinds.horizontal import Simulation
from tacit.simulation.metrics import Score, Test, client_metrics
from tacit.simulation.state import RunProgress, RunState
from tacit.study.kinds.fusion import FusionRun
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Samples


@dataclass(eq=False)
class FusionState(RunProgress):
    """One run: a state for each kind of network that its clients train, and what was made of them."""

    run: FusionRun
    parts: dict[Model, RunState] = field(default_factory=dict)
    networks: list[Dense] = field(default_factory=list)  # as the clients trained them last
    fused: Fused | None = None

    @property
    def first(self) -> RunState:
        """One of the parts; all of them know whose samples are whose."""
        return next(iter(self.parts.values()))

    def saved(self, *, whole: bool) -> dict[str, Any]:
        """What a checkpoint keeps."""
        arrays = (
            [] if self.fused is None else [*self.fused.network.weights, *self.fused.network.biases]
        )
        places = () if self.fused is None else self.fused.assignment
        return {
            **{name: getattr(self, name) for name in ("round", "status", "best", "stale")},
            "network": [torch.from_numpy(array) for array in arrays],
            "assignment": [[torch.from_numpy(own) for own in layer] for layer in places],
            "parts": [part.saved(whole=whole) for part in self.parts.values()],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        for name in ("round", "status", "best", "stale"):
            setattr(self, name, saved[name])
        for part, one in zip(self.parts.values(), saved["parts"], strict=True):
            part.restore(one)
        if saved["network"]:
            arrays = tuple(tensor.numpy() for tensor in saved["network"])
            half = len(arrays) // 2
            places = tuple(tuple(own.numpy() for own in layer) for layer in saved["assignment"])
            self.fused = Fused(Dense(arrays[:half], arrays[half:]), places)


class FusionSimulation(Engine, kind="fusion"):
    """Runs with a fusion, round by round; whoever plays a block sees no difference to a Simulation."""

    def __init__(
        self,
        runs: Sequence[tuple[str, FusionRun]],
        dataset: Dataset,
        public: Dataset | None = None,
        **options: Any,
    ) -> None:
        self.states = [FusionState(id, run) for id, run in runs]
        self.score, self.classes = Score.of(dataset), dataset.classes
        folder = options.pop("folder", None)
        groups: dict[Model, list[tuple[str, HorizontalRun]]] = {}
        for id, run in runs:
            for model in dict.fromkeys(run.model_of(client) for client in range(run.clients)):
                groups.setdefault(model, []).append((id, run.alone(model)))
        self.trainers = {
            model: Simulation(
                some, dataset, folder=folder and folder / _widths_in(model), **options
            )
            for model, some in groups.items()
        }
        pool = next(iter(self.trainers.values())).pool
        self.judge = Judge(self.score, pool.test_x, pool.test_y)
        known = {
            (part.id, model): part
            for model, trainer in self.trainers.items()
            for part in trainer.states
        }
        for state in (
            self.states
        ):  # in the order of its own clients, whatever runs are beside it when it is resumed
            for client in range(state.run.clients):
                model = state.run.model_of(client)
                state.parts[model] = known[state.id, model]

    def play_round(self) -> Iterator[tuple[dict[str, Any], float]]:
        """One round of every run that is still going: each one's record for the history, and its seconds."""
        going, drafts = self.going, self._train()
        for state in going:
            yield self._conclude(state, drafts[state.id])

    def saved(self, *, whole: bool = False) -> list[dict[str, Any]]:
        return [state.saved(whole=whole) for state in self.states]

    def checkpointed(self) -> None:
        for trainer in self.trainers.values():
            trainer.checkpointed()

    def discard(self) -> None:
        for trainer in self.trainers.values():
            trainer.discard()

    def state_dict(self, state: FusionState, client: int | None = None) -> dict[str, Tensor]:
        """The fused network, or the one that a client trained last, as torch saves models."""
        if client is not None:
            trainer = self.trainers[state.run.model_of(client)]
            row = state.parts[state.run.model_of(client)].recall(client).method["w"][0]
            return {
                name: value.cpu().clone() for name, value in trainer.layout.unflatten(row).items()
            }
        like = next(iter(self.trainers.values())).module.state_dict()
        return (
            {}
            if state.fused is None
            else {k: v.cpu() for k, v in state.fused.network.state(like).items()}
        )

    def _train(self) -> dict[str, list[Draft]]:
        """Every client's work of this round; that of the first is the same for all fusions, and done once."""
        alike: dict[str, list[FusionState]] = {}
        for state in self.going:
            alike.setdefault(state.id if state.round else str(state.run.shared_work()), []).append(
                state
            )
        found: dict[str, list[Draft]] = {state.id: [] for state in self.going}
        for model, trainer in self.trainers.items():
            jobs = [
                (first.parts[model], client)
                for first, *_ in alike.values()
                for client in range(first.run.clients)
                if first.run.model_of(client) == model
            ]
            with trainer.trainer.computing():
                for id, drafts in trainer.gather_drafts(jobs).items():
                    found[id] += drafts
        for first, *others in alike.values():
            seconds = sum(part.seconds for part in first.parts.values()) / (1 + len(others))
            for state in (first, *others):
                state.seconds, found[state.id] = (
                    seconds,
                    sorted(found[first.id], key=lambda draft: draft.client),
                )
        return found

    def _conclude(
        self, state: FusionState, drafts: Sequence[Draft]
    ) -> tuple[dict[str, Any], float]:
        """What came of a round, and whether the run goes on."""
        begin, before = time.perf_counter(), state.fused
        state.round += 1
        rows = [draft.memory["w"][0] for draft in drafts]
        size = sum(row.numel() * row.element_size() for row in rows)
        record: dict[str, Any] = {
            "run": state.id,
            "round": state.round,
            "loss": None,
            **self.score.nothing,
        }
        finite = all(bool(row.isfinite().all()) for row in rows)
        if finite:
            record |= self._fuse(state, drafts)
        if record["loss"] is None or not math.isfinite(record["loss"]):
            state.status, state.fused = "diverged", before
            record |= {"loss": None, **self.score.nothing}
        nothing: list[tuple[Test, Test]] = [((None, None), (None, None))] * len(drafts)
        tests = nothing if state.status == "diverged" else self._local_tests(state)
        worked = {draft.client: draft.figures for draft in drafts}
        fused_tests = [(client, fused, fused) for client, (fused, _) in enumerate(tests)]
        record |= client_metrics(self.score, state.first, worked, fused_tests)
        for one, (_, alone) in zip(record["clients"], tests, strict=True):
            one[f"alone_{self.score.name}"] = alone[1]
        record |= {"replies": len(drafts), "updated": finite}
        record |= {"bytes_up": size, "bytes_down": size if state.round > 1 else 0}
        state.judge(record[self.score.name])
        if state.status != "diverged":
            record["fusion"] |= self._send(state, drafts)
        seconds = time.perf_counter() - begin + state.seconds
        for part in state.parts.values():
            part.round, part.status, part.seconds = state.round, state.status, 0.0
        return {**record, "status": state.status}, seconds

    def _fuse(self, state: FusionState, drafts: Sequence[Draft]) -> dict[str, Any]:
        """Makes one network of all; its figures, and those of the others."""
        run, begin = state.run, time.perf_counter()
        if silent := sorted(set(range(run.clients)) - {draft.client for draft in drafts}):
            raise StudyError(
                f"client {silent[0]} has no batch to train on, and {run.fusion.name} fuses the networks of all clients;"
                " use another sampling"
            )
        state.networks = networks = [self._network(state, draft) for draft in drafts]
        start = state.fused.assignment if state.fused else None
        draw = numpy_generator(run.seed, "fusion", state.round)
        state.fused = run.fusion.fuse(networks, draw, counts=self._counts(state), start=start)
        seconds = time.perf_counter() - begin
        alike = len({network.widths for network in networks}) == 1
        average = (
            Average().fuse(networks, draw, counts=self._counts(state)).network if alike else None
        )
        found = self.judge.compare(
            self._module(state.fused.network),
            [self._module(network) for network in networks],
            None if average is None else self._module(average),
        )
        widths = state.fused.network.widths
        local = [[network.widths[layer] for network in networks] for layer in range(len(widths))]
        found["fusion"] = {
            "alone": found.pop("alone"),
            "widths": list(widths),
            "local_widths": local,
        }
        return found | {
            "width": sum(widths),
            "local_width": sum(map(sum, local)),
            "matching_seconds": seconds,
        }

    def _local_tests(self, state: FusionState) -> list[tuple[Test, Test]]:
        """Each client's local test with the fused network, and with the one that it trained."""
        assert state.fused is not None
        samples, whole, found = self._samples(state), self._module(state.fused.network), []
        for client, network in enumerate(state.networks):
            index = state.first.test[client]
            x, y = samples.features(index), samples.y[index]
            found.append(
                (self.judge.test(whole, x, y), self.judge.test(self._module(network), x, y))
            )
        return found

    def _send(self, state: FusionState, drafts: Sequence[Draft]) -> dict[str, Any]:
        """What every client goes on with: its own neurons of the fused network or, at the end, what it has trained.

        At the end also, for the record, which neurons these are.
        """
        assert state.fused is not None
        for draft in drafts:
            row = draft.memory["w"]
            if state.status == "running":
                layout = self.trainers[state.run.model_of(draft.client)].layout
                matched = state.fused.part(draft.client).state(layout.unflatten(row[0]))
                row = torch.cat([matched[name].reshape(-1) for name in layout.names])[None]
            state.parts[state.run.model_of(draft.client)].remember(
                {draft.client: Memory({"w": row})}
            )
        if state.status == "running":
            return {}
        return {"assignment": [[own.tolist() for own in layer] for layer in state.fused.assignment]}

    def _network(self, state: FusionState, draft: Draft) -> Dense:
        layout = self.trainers[state.run.model_of(draft.client)].layout
        return Dense.of(layout.unflatten(draft.memory["w"][0]), f"client {draft.client}")

    def _module(self, network: Dense) -> nn.Module:
        return network.module(next(iter(self.trainers.values())).module)

    def _samples(self, state: FusionState) -> Samples:
        """Those that the state's first part knows by their numbers; every kind of network may have noise of its own."""
        return self.trainers[next(iter(state.parts))].pool.train

    def _counts(self, state: FusionState) -> Floats:
        """How many samples each client has of each class or, in a regression, in all. # (J, classes)"""
        samples, parts = (
            self._samples(state),
            [state.first.train[client] for client in range(state.run.clients)],
        )
        if not self.classes:
            return np.array([[len(part)] for part in parts], np.float64)
        labels = [samples.y[part].cpu() for part in parts]
        return np.stack([own.bincount(minlength=self.classes).double().numpy() for own in labels])


def _widths_in(model: Model) -> str:
    """A name for the files of clients with this model, the same whatever runs are beside theirs."""
    return "-".join(map(str, model.hidden)) if isinstance(model, Mlp) else model.name
