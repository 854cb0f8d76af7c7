"""What is measured after every round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.rows import Rows
from tacit.rounds.client import personal_model
from tacit.rounds.participant import TrainingFigures
from tacit.rounds.server import broadcast
from tacit.simulation.state import BlockSamples, RunState
from tacit.study.tested_clients import tested_clients
from tacit.training.batches import Samples
from tacit.training.evaluation import Answers, join_answers
from tacit.training.row_trainer import RowTrainer
from tacit.training.yardstick import Yardstick

Test = Mapping[str, float | None]  # what a test has shown: the loss, and every metric
FiguresByClient = dict[int, TrainingFigures]  # of every client that replied
NO_SAMPLES = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class TestAnswers:
    """What a run's global model answers to the test set, and to the local tests of some clients."""

    test_set: Answers
    clients: list[int]
    local: Answers  # to the tests of these clients, one after another


def test_runs(
    trainer: RowTrainer, samples: BlockSamples, cohorts: Sequence[tuple[RunState, Sequence[int]]]
) -> list[TestAnswers]:
    """Tests the global models of these runs, given the clients chosen for the round."""
    models = []
    clients = []
    indices = []
    for state, chosen in cohorts:
        tested = tested_clients(state.run, chosen)
        models.append((state.server["x"], state.buffers))
        clients.append(tested)
        indices.append(_join([state.test[client] for client in tested]))
    on_test_set = trainer.test(models, samples.test)
    on_local_tests = trainer.test(models, samples.train, indices)
    by_run = zip(on_test_set, clients, on_local_tests, strict=True)
    return [TestAnswers(*answers) for answers in by_run]


@dataclass(frozen=True)
class BlockMetrics:
    """Measures the runs of a block."""

    trainer: RowTrainer
    samples: BlockSamples
    yardstick: Yardstick

    def global_metrics(self, state: RunState, answers: TestAnswers) -> dict[str, Any]:
        """The global model's loss and metrics on the test set, and how often an attack succeeds."""
        y = self.samples.test_y.cpu()
        test_set = answers.test_set
        metrics: dict[str, Any] = {"loss": _mean(test_set.losses)}
        if not math.isfinite(metrics["loss"]):
            return metrics
        metrics |= self.yardstick.figures(self.yardstick.measure(test_set, y))
        attack = state.run.attackers
        if attack.measures:
            x, y = attack.probe(self.samples.test_x, self.samples.test_y)
            probe = self.trainer.prepared(Samples(x, y))
            model = (state.server["x"], state.buffers)
            (probed,) = self.trainer.test([model], probe)
            metrics[attack.measures] = _mean(probed.hits(y.cpu()))
        return metrics

    def local_metrics(
        self, state: RunState, worked: FiguresByClient, answers: TestAnswers
    ) -> dict[str, Any]:
        """The tested clients' metrics.

        They are measured on training samples as the clients worked through them, and on their local
        tests afterwards. With the metric that decides, `local_accuracy`, `worst` and `spread` are
        the mean, the worst and the standard deviation of the honest clients' local tests, each with
        the model it uses; `central_accuracy` is that mean with the global model.
        """
        clients = answers.clients
        central: list[Test] = [{}] * len(clients)
        if state.status == "running":
            central = self.measure_clients(state, clients, answers.local)
        personal = central
        if state.status == "running" and state.run.is_personal:
            personal_answers = self.personal_answers(state, clients)
            personal = self.measure_clients(state, clients, personal_answers)
        tests = list(zip(clients, personal, central, strict=True))
        return client_metrics(self.yardstick, state, worked, tests)

    def personal_answers(self, state: RunState, clients: Sequence[int]) -> Answers:
        """What each client's personal model answers to its local test, one after another."""
        models = [client_model(self.trainer, state, client) for client in clients]
        shards = [state.test[client] for client in clients]
        return join_answers(self.trainer.test(models, self.samples.train, shards))

    def measure_clients(
        self, state: RunState, clients: Sequence[int], answers: Answers
    ) -> list[Test]:
        """Each client's loss and metrics, from the answers to the local tests of all of them."""
        shards = [state.test[client] for client in clients]
        y = self.samples.y[_join(shards).to(self.samples.y.device)].cpu()
        return measure_tests(self.yardstick, answers, y, [len(shard) for shard in shards])


def measure_tests(
    yardstick: Yardstick, answers: Answers, y: Tensor, sizes: Sequence[int]
) -> list[Test]:
    """The loss and the metrics of several tests, which are one after another in the answers.

    A test without samples shows nothing.
    """
    if not len(y):
        return [{"loss": None, **yardstick.no_figures} for _ in sizes]
    group = np.repeat(np.arange(len(sizes)), sizes)
    losses = np.bincount(group, answers.losses.double().numpy(), len(sizes))
    figures = yardstick.measure(answers, y, group, len(sizes))
    tests: list[Test] = []
    for number, size in enumerate(sizes):
        loss = float(losses[number]) / size if size else None
        tests.append({"loss": loss, **yardstick.figures(figures, number)})
    return tests


def client_metrics(
    yardstick: Yardstick,
    state: RunState,
    worked: FiguresByClient,
    tests: Sequence[tuple[int, Test, Test]],
) -> dict[str, Any]:
    """The clients' metrics, given each one's test with the model it uses and the global one."""
    name = yardstick.name
    clients = []
    personal_tests = []
    central_tests = []
    for client, personal, central in tests:
        record = _client_record(yardstick, state, client, worked.get(client), personal)
        if state.run.is_personal:
            record[f"central_{name}"] = central.get(name)
        if state.attackers:
            record["attacker"] = client in state.attackers
        clients.append(record)
        if client not in state.attackers:
            personal_tests.append(personal.get(name))
            central_tests.append(central.get(name))
    scores = _finite(personal_tests)
    with np.errstate(over="ignore"):  # of a model about to diverge
        spread = float(np.std(scores)) if scores else None
    return {
        f"local_{name}": _average(scores),
        f"central_{name}": _average(_finite(central_tests)),
        "worst": min(scores, key=yardstick.metric.merit, default=None),
        "spread": spread,
        "clients": clients,
    }


def _client_record(
    yardstick: Yardstick, state: RunState, client: int, worked: TrainingFigures | None, test: Test
) -> dict[str, Any]:
    """One client's figures; `test` is that of the model that it uses."""
    steps, train_loss, hits = worked or (0, None, None)
    record = {
        "client": client,
        "samples": len(state.train[client]),
        "steps": steps,
        "train_loss": train_loss,
        f"train_{yardstick.basis}": None if hits is None else yardstick.from_hits(hits),
        "test_loss": test.get("loss"),
    }
    for name in yardstick.names:
        record[f"test_{name}"] = test.get(name)
    return record


def client_model(trainer: RowTrainer, state: RunState, client: int) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers."""
    sent = broadcast(state.run, state.server, client)
    return personal_model(state.participant(client), sent, state.buffers, trainer)


def _join(shards: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(shards)) if shards else NO_SAMPLES


def _finite(scores: Sequence[float | None]) -> list[float]:
    """The scores that there are: a model about to diverge may have none on some test."""
    return [score for score in scores if score is not None and math.isfinite(score)]


def _average(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
