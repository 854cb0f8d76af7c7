"""Rounds of fusion: every client trains a network, of its own width, and the server fuses them.

With more than one round, each client goes on from its own neurons, with the weights that the fused
network gave them. Beside the fused network three others are tested: the clients' own, their plain
average, and their ensemble.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.core.arrays import Floats
from tacit.core.errors import StudyError
from tacit.core.seeds import numpy_generator
from tacit.core.vectors import Layout
from tacit.data.dataset import Dataset
from tacit.federated.fusion.average import Average
from tacit.federated.fusion.dense import Dense
from tacit.models.model import Mlp, Model
from tacit.rounds.participant import Draft, Memory
from tacit.simulation.assessment import Assessor, Findings, LocalTest
from tacit.simulation.engine import Engine, Record
from tacit.simulation.fusion_baselines import NetworkTester
from tacit.simulation.fusion_state import FusionState, convert_neurons
from tacit.simulation.kinds.horizontal import Simulation
from tacit.simulation.metrics import Test, client_metrics
from tacit.simulation.state import RunState
from tacit.study.kinds.fusion import FusionRun
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Samples
from tacit.training.evaluation import Answers
from tacit.training.losses import USUAL
from tacit.training.yardstick import Yardstick


class FusionSimulation(Engine, kind="fusion"):
    """Runs with a fusion, round by round; whoever plays a block uses it like a Simulation."""

    def __init__(
        self,
        runs: Sequence[tuple[str, FusionRun]],
        dataset: Dataset,
        public: Dataset | None = None,
        *,
        metric: str | None = None,
        **options: Any,
    ) -> None:
        self.states = [FusionState(id, run) for id, run in runs]
        self.yardstick = Yardstick.of(dataset, metric or runs[0][1].metric)
        self.dataset = dataset
        self.classes = dataset.classes
        # by model, what trains the clients that have it
        self.simulations = _make_simulations(runs, dataset, options)
        samples = self._any_simulation.samples
        loss = self._any_simulation.trainer.loss or USUAL
        self.tester = NetworkTester(self.yardstick, samples.test_x, samples.test_y, loss)
        for state in self.states:
            state.by_model = self._client_states(state)

    def play_round(self) -> Iterator[tuple[Record, float]]:
        """One round of every run that is going: its record for the history, and its seconds."""
        going = self.going
        drafts = self._train()
        for state in going:
            yield self._record_round(state, drafts[state.id])

    def saved(self, *, portable: bool = False) -> list[dict[str, Any]]:
        return [state.saved(portable=portable) for state in self.states]

    def checkpointed(self) -> None:
        for simulation in self.simulations.values():
            simulation.checkpointed()

    def discard(self) -> None:
        for simulation in self.simulations.values():
            simulation.discard()

    def assess(self, state: FusionState) -> Findings:
        """What is to be known of the fused network."""
        if state.fused is None:
            return {}
        module = self._module(state.fused.network)
        samples = self._samples(state)
        device = self.tester.x.device

        def answer(x: Tensor, y: Tensor, client: int | None) -> Answers:  # noqa: ARG001  (all use the same)
            return self.tester.answers(module, x.to(device), y.to(device))

        tests = {}
        for client in range(state.run.clients):
            index = state.first.test[client]
            rows = index.numpy() - state.first.offset
            tests[client] = LocalTest(samples.features(index), samples.y[index].cpu(), rows)
        return Assessor(self.dataset, self.yardstick, state.run.importance).assess(answer, tests)

    def state_dict(self, state: FusionState, client: int | None = None) -> dict[str, Tensor]:
        """The fused network, or the one that a client trained last, as torch saves models."""
        if client is not None:
            memory = state.state_of(client).recall(client)
            entries = self._layout(state, client).unflatten(memory.method["w"][0])
            return {name: value.cpu().clone() for name, value in entries.items()}
        if state.fused is None:
            return {}
        like = self._any_simulation.module.state_dict()
        entries = state.fused.network.state(like)
        return {name: value.cpu() for name, value in entries.items()}

    @property
    def _any_simulation(self) -> Simulation:
        return next(iter(self.simulations.values()))

    def _client_states(self, run_state: FusionState) -> dict[Model, RunState]:
        """The states of a run's clients, by model.

        They are in the order of its clients, whatever runs are beside it when it is resumed.
        """
        by_model: dict[Model, RunState] = {}
        for client in range(run_state.run.clients):
            model = run_state.run.model_of(client)
            if model not in by_model:
                states = self.simulations[model].states
                by_model[model] = next(state for state in states if state.id == run_state.id)
        return by_model

    def _train(self) -> dict[str, list[Draft]]:
        """Every client's work of this round, by run; runs that share it do it once."""
        sharing = self._sharing_runs()
        drafts: dict[str, list[Draft]] = {state.id: [] for state in self.going}
        for model, simulation in self.simulations.items():
            jobs = []
            for worker, *_ in sharing:
                clients = worker.clients_with(model)
                jobs += [(worker.by_model[model], client) for client in clients]
            with simulation.trainer.computing():
                for id, model_drafts in simulation.gather_drafts(jobs).items():
                    drafts[id] += model_drafts
        for states in sharing:
            worker = states[0]
            worker_drafts = sorted(drafts[worker.id], key=lambda draft: draft.client)
            seconds = sum(state.seconds for state in worker.by_model.values())
            for state in states:
                state.seconds = seconds / len(states)
                drafts[state.id] = worker_drafts
        return drafts

    def _sharing_runs(self) -> list[list[FusionState]]:
        """Groups of runs whose clients do the same in this round.

        In the first round, these are runs that differ in their fusion only.
        """
        sharing: dict[str, list[FusionState]] = {}
        for state in self.going:
            key = state.id if state.round else str(state.run.shared_work())
            sharing.setdefault(key, []).append(state)
        return list(sharing.values())

    def _record_round(self, state: FusionState, drafts: Sequence[Draft]) -> tuple[Record, float]:
        """The round's record and its seconds; also decides whether the run goes on."""
        begin = time.perf_counter()
        rows = [draft.method_memory["w"][0] for draft in drafts]
        is_finite = all(bool(row.isfinite().all()) for row in rows)
        size = sum(row.numel() * row.element_size() for row in rows)
        state.round += 1
        record: Record = {"run": state.id, "round": state.round}
        record |= self._fused_metrics(state, drafts, is_finite=is_finite)
        record |= self._local_metrics(state, drafts)
        record["replies"] = len(drafts)
        record["updated"] = is_finite
        record["bytes_up"] = size
        record["bytes_down"] = size if state.round > 1 else 0
        state.update_status(record[self.yardstick.name], self.yardstick.metric)
        if state.status != "diverged":
            record["fusion"] |= self._send(state, drafts)
        record["status"] = state.status
        seconds = time.perf_counter() - begin + state.seconds
        state.end_round()
        return record, seconds

    def _fused_metrics(
        self, state: FusionState, drafts: Sequence[Draft], *, is_finite: bool
    ) -> Record:
        """What comes of the fusion; if its numbers are not finite, the run has diverged."""
        before = state.fused
        nothing = {"loss": None, **self.yardstick.no_figures}
        metrics = dict(nothing)
        if is_finite:
            metrics |= self._fuse(state, drafts)
        if metrics["loss"] is None or not math.isfinite(metrics["loss"]):
            state.status = "diverged"
            state.fused = before
            metrics |= nothing
        return metrics

    def _fuse(self, state: FusionState, drafts: Sequence[Draft]) -> Record:
        """Makes one network of all; its figures, and those of the others."""
        begin = time.perf_counter()
        _check_everybody_trained(state.run, drafts)
        networks = [self._network(state, draft) for draft in drafts]
        counts = self._counts(state)
        rng = numpy_generator(state.run.seed, "fusion", state.round)
        start = state.fused.assignment if state.fused else None
        state.networks = networks
        state.fused = state.run.fusion.fuse(networks, rng, counts=counts, start=start)
        seconds = time.perf_counter() - begin
        average = None
        if len({network.widths for network in networks}) == 1:
            average = Average().fuse(networks, rng, counts=counts).network
        metrics = self._compare(state.fused.network, networks, average)
        metrics["matching_seconds"] = seconds
        return metrics

    def _compare(self, fused: Dense, networks: Sequence[Dense], average: Dense | None) -> Record:
        """The figures of the fused network, those of the others, and the widths of all."""
        fused_module = self._module(fused)
        local_modules = [self._module(network) for network in networks]
        average_module = None
        if average:
            average_module = self._module(average)
        metrics = self.tester.compare(fused_module, local_modules, average_module)
        by_client = [network.widths for network in networks]
        by_layer = zip(*by_client, strict=True)
        local_widths = [list(widths) for widths in by_layer]
        metrics["fusion"] = {
            "alone": metrics.pop("alone"),
            "widths": list(fused.widths),
            "local_widths": local_widths,
        }
        metrics["width"] = sum(fused.widths)
        metrics["local_width"] = sum(map(sum, local_widths))
        return metrics

    def _local_metrics(self, state: FusionState, drafts: Sequence[Draft]) -> Record:
        """The clients' metrics: as they trained, and on their local tests afterwards."""
        fused_tests: list[Test] = [{}] * len(drafts)
        alone_tests = fused_tests
        if state.status != "diverged":
            fused_tests, alone_tests = self._local_tests(state)
        worked = {draft.client: draft.figures for draft in drafts}
        tests = [(client, test, test) for client, test in enumerate(fused_tests)]
        metrics = client_metrics(self.yardstick, state.first, worked, tests)
        name = self.yardstick.name
        for record, alone in zip(metrics["clients"], alone_tests, strict=True):
            record[f"alone_{name}"] = alone.get(name)
        return metrics

    def _local_tests(self, state: FusionState) -> tuple[list[Test], list[Test]]:
        """The clients' local tests with the fused network, and with those that they trained."""
        assert state.fused is not None
        samples = self._samples(state)
        fused = self._module(state.fused.network)
        fused_tests = []
        alone_tests = []
        for client, network in enumerate(state.networks):
            index = state.first.test[client]
            x = samples.features(index)
            y = samples.y[index]
            fused_tests.append(self.tester.test(fused, x, y))
            alone_tests.append(self.tester.test(self._module(network), x, y))
        return fused_tests, alone_tests

    def _send(self, state: FusionState, drafts: Sequence[Draft]) -> Record:
        """Gives every client what it goes on with: its own neurons of the fused network.

        After the last round, clients keep what they have trained, and the record gets which neurons
        of the fused network each client's are.
        """
        assert state.fused is not None
        is_running = state.status == "running"
        for draft in drafts:
            row = draft.method_memory["w"]
            if is_running:
                layout = self._layout(state, draft.client)
                network = state.fused.part(draft.client)
                matched = network.state(layout.unflatten(row[0]))
                flat = [matched[name].reshape(-1) for name in layout.names]
                row = torch.cat(flat)[None]
            memory = Memory({"w": row})
            state.state_of(draft.client).remember({draft.client: memory})
        if is_running:
            return {}
        assignment = convert_neurons(state.fused.assignment, lambda neurons: neurons.tolist())
        return {"assignment": assignment}

    def _network(self, state: FusionState, draft: Draft) -> Dense:
        row = draft.method_memory["w"][0]
        entries = self._layout(state, draft.client).unflatten(row)
        return Dense.of(entries, f"client {draft.client}")

    def _layout(self, state: FusionState, client: int) -> Layout:
        return self.simulations[state.run.model_of(client)].layout

    def _module(self, network: Dense) -> nn.Module:
        return network.module(self._any_simulation.module)

    def _samples(self, state: FusionState) -> Samples:
        """Those that the run's first state has the indices of.

        Every kind of network may have noise of its own on them.
        """
        first_model = next(iter(state.by_model))
        return self.simulations[first_model].samples.train

    def _counts(self, state: FusionState) -> Floats:
        """How many samples each client has of each class. # (J, classes)

        In a regression, how many it has in all. # (J, 1)
        """
        shards = list(state.first.train)
        if not self.classes:
            return np.array([[len(shard)] for shard in shards], np.float64)
        samples = self._samples(state)
        counts = []
        for shard in shards:
            labels = samples.y[shard].cpu()
            label_counts = labels.bincount(minlength=self.classes)
            counts.append(label_counts.double().numpy())
        return np.stack(counts)


def _make_simulations(
    runs: Sequence[tuple[str, FusionRun]], dataset: Dataset, options: Mapping[str, Any]
) -> dict[Model, Simulation]:
    """For each model that some client has, the local training of all clients that have it."""
    groups: dict[Model, list[tuple[str, HorizontalRun]]] = {}
    for id, run in runs:
        models = [run.model_of(client) for client in range(run.clients)]
        for model in dict.fromkeys(models):
            group = groups.setdefault(model, [])
            group.append((id, run.alone(model)))
    folder = options.get("folder")
    simulations = {}
    for model, group in groups.items():
        own_options = dict(options)
        if folder:
            own_options["folder"] = folder / _folder_name(model)
        simulations[model] = Simulation(group, dataset, **own_options)
    return simulations


def _folder_name(model: Model) -> str:
    """For the files of clients with this model, the same whatever runs are beside theirs."""
    if isinstance(model, Mlp):
        return "-".join(map(str, model.hidden))
    return model.name


def _check_everybody_trained(run: FusionRun, drafts: Sequence[Draft]) -> None:
    trained = {draft.client for draft in drafts}
    silent = sorted(set(range(run.clients)) - trained)
    if silent:
        raise StudyError(
            f"client {silent[0]} has no batch to train on, and {run.fusion.name} fuses the networks"
            " of all clients; use another sampling"
        )
