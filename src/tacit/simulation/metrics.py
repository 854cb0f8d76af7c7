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
from tacit.rounds.client import Figures, personal_model
from tacit.rounds.server import broadcast
from tacit.simulation.state import GroupSamples, RunState
from tacit.study.tested_clients import tested_clients
from tacit.training.batches import Samples
from tacit.training.row_trainer import RowTrainer

Test = tuple[float | None, float | None]  # a client's loss and score on its local test
Tests = Sequence[Test]
Answers = tuple[Tensor, Tensor]  # each sample's loss and hit
Work = dict[int, Figures]  # of every client that replied
NOBODY = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class Score:
    """What models are judged by: accuracy or, in a regression, R2 = 1 - mean squared error / variance.

    The variance is that of the test set's outcomes, for local tests and training samples too, so that the figures of a
    study can be compared and averaged.
    """

    name: str = "accuracy"
    variance: float = 1.0
    spread: float = 1.0  # a unit of the outcomes, in the target's own

    @classmethod
    def of(cls, dataset: Dataset) -> Score:
        if dataset.score == "accuracy":
            return cls()
        return cls("r2", dataset.test_y.double().var(correction=0).item(), dataset.target_spread)

    def __call__(self, hits: float) -> float:
        """The score, from the mean of the hits or of the squared errors."""
        return hits if self.name == "accuracy" else 1 - hits / self.variance

    def whole(self, hits: float) -> dict[str, float]:
        """The global model's figures; in a regression also the root mean squared error, in the target's own units."""
        if self.name == "accuracy":
            return {self.name: self(hits)}
        return {self.name: self(hits), "rmse": math.sqrt(hits) * self.spread}

    @property
    def nothing(self) -> dict[str, float | None]:
        """The same for a model that has none."""
        return dict.fromkeys(self.whole(0.0), None)


@dataclass(frozen=True)
class TestFigures:
    """A run's global model on the test set, and on the local tests of some clients."""

    whole: Answers
    clients: list[int]
    central: list[Answers]


def test_runs(
    trainer: RowTrainer, pool: GroupSamples, cohorts: Sequence[tuple[RunState, Sequence[int]]]
) -> list[TestFigures]:
    """Tests the global models of these runs, given the clients chosen for the round."""
    models = [(state.server["x"], state.buffers) for state, _ in cohorts]
    whole = trainer.test(models, pool.test)
    clients = [tested_clients(state.run, chosen) for state, chosen in cohorts]
    shards = [
        [state.test[client] for client in some]
        for (state, _), some in zip(cohorts, clients, strict=True)
    ]
    local = trainer.test(
        models, pool.train, [torch.cat(some) if some else NOBODY for some in shards]
    )
    tested = []
    for run, (losses, hits) in enumerate(local):
        sizes = [len(shard) for shard in shards[run]]
        central = list(zip(losses.split(sizes), hits.split(sizes), strict=True))
        tested.append(TestFigures(whole[run], clients[run], central))
    return tested


def global_metrics(
    trainer: RowTrainer, pool: GroupSamples, score: Score, state: RunState, tested: TestFigures
) -> dict[str, Any]:
    """Loss and score of the global model on the test set, and how often an attack succeeds."""
    losses, hits = tested.whole
    metrics: dict[str, Any] = {"loss": _mean(losses), **score.whole(_mean(hits))}
    attack = state.run.attackers
    if attack.measures:
        trial = Samples(*attack.probe(pool.test_x, pool.test_y))
        model = (state.server["x"], state.buffers)
        ((_, hits),) = trainer.test([model], trainer.prepared(trial))
        metrics[attack.measures] = _mean(hits)
    return metrics


def local_metrics(
    trainer: RowTrainer,
    pool: GroupSamples,
    score: Score,
    state: RunState,
    worked: Work,
    tested: TestFigures,
) -> dict[str, Any]:
    """The tested clients' metrics: on training samples as they worked through them, on their local tests afterwards.

    `local_accuracy`, `worst` and `spread` are the mean, the least and the standard deviation of the honest clients'
    local test accuracies, each with the model it uses; `central_accuracy` is that mean with the global model. A
    regression has `local_r2` and so on.
    """
    central: Tests = [(None, None)] * len(tested.clients)
    if state.status == "running":
        central = [_mean_pair(score, *figures) for figures in tested.central]
    own = central
    if state.status == "running" and state.run.is_personal:
        own = _personal_tests(trainer, pool, score, state, tested.clients)
    return client_metrics(
        score, state, worked, list(zip(tested.clients, own, central, strict=True))
    )


def client_metrics(
    score: Score, state: RunState, worked: Work, tests: Sequence[tuple[int, Test, Test]]
) -> dict[str, Any]:
    """The clients' metrics, given each one's test with the model it uses and with the global one."""
    clients = []
    for client, (loss, value), (_, central) in tests:
        clients.append(
            _client_record(score, state, client, worked.get(client), (loss, value, central))
        )
    values = _honest_scores(state, [(client, own) for client, own, _ in tests])
    central_values = _honest_scores(state, [(client, central) for client, _, central in tests])
    with np.errstate(over="ignore"):  # of a model about to diverge
        spread = float(np.std(values)) if values else None
    return {
        f"local_{score.name}": _average(values),
        f"central_{score.name}": _average(central_values),
        "worst": min(values, default=None),
        "spread": spread,
        "clients": clients,
    }


def _client_record(
    score: Score,
    state: RunState,
    client: int,
    worked: Figures | None,
    tests: tuple[float | None, float | None, float | None],
) -> dict[str, Any]:
    """One client's figures; `tests` are the loss and score of its model, and the score of the global one."""
    steps, loss, hits = worked or (0, None, None)
    record = {
        "client": client,
        "samples": len(state.train[client]),
        "steps": steps,
        "train_loss": loss,
        f"train_{score.name}": None if hits is None else score(hits),
        "test_loss": tests[0],
        f"test_{score.name}": tests[1],
    }
    if state.run.is_personal:
        record[f"central_{score.name}"] = tests[2]
    if state.attackers:
        record["attacker"] = client in state.attackers
    return record


def _personal_tests(
    trainer: RowTrainer, pool: GroupSamples, score: Score, state: RunState, clients: Sequence[int]
) -> Tests:
    """Each client's own model on its local test."""
    models = [client_model(trainer, state, client) for client in clients]
    figures = trainer.test(models, pool.train, [state.test[client] for client in clients])
    return [_mean_pair(score, *pair) for pair in figures]


def client_model(trainer: RowTrainer, state: RunState, client: int) -> tuple[Tensor, Rows]:
    """The model that a client uses itself, and its buffers."""
    sent = broadcast(state.run, state.server, client)
    return personal_model(state.participant(client), sent, state.buffers, trainer)


def _honest_scores(state: RunState, tests: Sequence[tuple[int, Test]]) -> list[float]:
    """Of the clients that have a finite one: a model about to diverge may have none on some test."""
    scores = [score for client, (_, score) in tests if client not in state.attackers]
    return [score for score in scores if score is not None and math.isfinite(score)]


def _average(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean_pair(score: Score, losses: Tensor, hits: Tensor) -> Test:
    return (_mean(losses), score(_mean(hits))) if len(losses) else (None, None)


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
