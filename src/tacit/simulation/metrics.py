"""What is measured after every round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.rows import Rows
from tacit.data.dataset import Dataset
from tacit.rounds.client import personal_model
from tacit.rounds.participant import TrainingFigures
from tacit.rounds.server import broadcast
from tacit.simulation.state import BlockSamples, RunState
from tacit.study.tested_clients import tested_clients
from tacit.training.batches import Samples
from tacit.training.evaluation import LossesAndHits
from tacit.training.row_trainer import RowTrainer

Test = tuple[float | None, float | None]  # a client's loss and score on its local test
FiguresByClient = dict[int, TrainingFigures]  # of every client that replied
NO_SAMPLES = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class Score:
    """What models are judged by: accuracy or, in a regression, R2.

    R2 = 1 - mean squared error / variance. The variance is that of the test set's outcomes, for
    local tests and training samples too, so that the figures of a study can be compared and
    averaged.
    """

    name: str = "accuracy"
    variance: float = 1.0
    spread: float = 1.0  # what one unit of the scaled outcomes is, in the target's units

    @classmethod
    def of(cls, dataset: Dataset) -> Score:
        if dataset.score == "accuracy":
            return cls()
        variance = dataset.test_y.double().var(correction=0).item()
        return cls("r2", variance, dataset.target_spread)

    def __call__(self, hits: float) -> float:
        """The score, from the mean of the hits or of the squared errors."""
        return hits if self.name == "accuracy" else 1 - hits / self.variance

    def global_figures(self, hits: float) -> dict[str, float]:
        """The global model's score; in a regression also the root mean squared error.

        That error is in the target's units.
        """
        figures = {self.name: self(hits)}
        if self.name != "accuracy":
            figures["rmse"] = math.sqrt(hits) * self.spread
        return figures

    @property
    def no_figures(self) -> dict[str, float | None]:
        """The same for a model that has diverged."""
        return dict.fromkeys(self.global_figures(0.0), None)


@dataclass(frozen=True)
class TestFigures:
    """A run's global model on the test set, and on the local tests of some clients."""

    test_set: LossesAndHits
    clients: list[int]
    local: list[LossesAndHits]  # of these clients


def test_runs(
    trainer: RowTrainer, samples: BlockSamples, cohorts: Sequence[tuple[RunState, Sequence[int]]]
) -> list[TestFigures]:
    """Tests the global models of these runs, given the clients chosen for the round."""
    models = []
    clients = []
    shards = []
    for state, chosen in cohorts:
        tested = tested_clients(state.run, chosen)
        models.append((state.server["x"], state.buffers))
        clients.append(tested)
        shards.append([state.test[client] for client in tested])
    on_test_set = trainer.test(models, samples.test)
    indices = [_join(run_shards) for run_shards in shards]
    on_local_tests = trainer.test(models, samples.train, indices)
    figures = []
    for run, (losses, hits) in enumerate(on_local_tests):
        sizes = [len(shard) for shard in shards[run]]
        pairs = zip(losses.split(sizes), hits.split(sizes), strict=True)
        figures.append(TestFigures(on_test_set[run], clients[run], list(pairs)))
    return figures


@dataclass(frozen=True)
class BlockMetrics:
    """Measures the runs of a block."""

    trainer: RowTrainer
    samples: BlockSamples
    score: Score

    def global_metrics(self, state: RunState, figures: TestFigures) -> dict[str, Any]:
        """Loss and score of the global model on the test set, and how often an attack succeeds."""
        losses, hits = figures.test_set
        metrics: dict[str, Any] = {"loss": _mean(losses)}
        metrics |= self.score.global_figures(_mean(hits))
        attack = state.run.attackers
        if attack.measures:
            x, y = attack.probe(self.samples.test_x, self.samples.test_y)
            probe = self.trainer.prepared(Samples(x, y))
            model = (state.server["x"], state.buffers)
            ((_, hits),) = self.trainer.test([model], probe)
            metrics[attack.measures] = _mean(hits)
        return metrics

    def local_metrics(
        self, state: RunState, worked: FiguresByClient, figures: TestFigures
    ) -> dict[str, Any]:
        """The tested clients' metrics.

        They are measured on training samples as the clients worked through them, and on their local
        tests afterwards. `local_accuracy`, `worst` and `spread` are the mean, the least and the
        standard deviation of the honest clients' local test accuracies, each with the model it
        uses; `central_accuracy` is that mean with the global model. A regression has `local_r2` and
        so on.
        """
        clients = figures.clients
        central: list[Test] = [(None, None)] * len(clients)
        if state.status == "running":
            central = [_mean_test(self.score, *pair) for pair in figures.local]
        personal = central
        if state.status == "running" and state.run.is_personal:
            personal = self._personal_tests(state, clients)
        tests = list(zip(clients, personal, central, strict=True))
        return client_metrics(self.score, state, worked, tests)

    def _personal_tests(self, state: RunState, clients: Sequence[int]) -> list[Test]:
        """Each client's personal model on its local test."""
        models = [client_model(self.trainer, state, client) for client in clients]
        shards = [state.test[client] for client in clients]
        figures = self.trainer.test(models, self.samples.train, shards)
        return [_mean_test(self.score, *pair) for pair in figures]


def client_metrics(
    score: Score, state: RunState, worked: FiguresByClient, tests: Sequence[tuple[int, Test, Test]]
) -> dict[str, Any]:
    """The clients' metrics, given each one's test with the model it uses and the global one."""
    clients = []
    personal_tests = []
    central_tests = []
    for client, personal, central in tests:
        record = _client_record(score, state, client, worked.get(client), personal)
        if state.run.is_personal:
            record[f"central_{score.name}"] = central[1]
        if state.attackers:
            record["attacker"] = client in state.attackers
        clients.append(record)
        if client not in state.attackers:
            personal_tests.append(personal)
            central_tests.append(central)
    scores = _finite_scores(personal_tests)
    with np.errstate(over="ignore"):  # of a model about to diverge
        spread = float(np.std(scores)) if scores else None
    return {
        f"local_{score.name}": _average(scores),
        f"central_{score.name}": _average(_finite_scores(central_tests)),
        "worst": min(scores, default=None),
        "spread": spread,
        "clients": clients,
    }


def _client_record(
    score: Score, state: RunState, client: int, worked: TrainingFigures | None, test: Test
) -> dict[str, Any]:
    """One client's figures; `test` is that of the model that it uses."""
    steps, train_loss, hits = worked or (0, None, None)
    test_loss, test_score = test
    return {
        "client": client,
        "samples": len(state.train[client]),
        "steps": steps,
        "train_loss": train_loss,
        f"train_{score.name}": None if hits is None else score(hits),
        "test_loss": test_loss,
        f"test_{score.name}": test_score,
    }


def client_model(trainer: RowTrainer, state: RunState, client: int) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers."""
    sent = broadcast(state.run, state.server, client)
    return personal_model(state.participant(client), sent, state.buffers, trainer)


def _join(shards: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(shards)) if shards else NO_SAMPLES


def _finite_scores(tests: Sequence[Test]) -> list[float]:
    """The scores that there are: a model about to diverge may have none on some test."""
    scores = [score for _, score in tests if score is not None]
    return [score for score in scores if math.isfinite(score)]


def _average(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean_test(score: Score, losses: Tensor, hits: Tensor) -> Test:
    """Loss and score on a local test; of an empty one, nothing."""
    if not len(losses):
        return None, None
    return _mean(losses), score(_mean(hits))


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
