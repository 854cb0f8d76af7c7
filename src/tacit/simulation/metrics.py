"""What is measured after every round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.seeds import generator
from tacit.data.dataset import Dataset
from tacit.rounds.client import Reply, personal_model
from tacit.rounds.state import RunState, is_personal
from tacit.simulation.testing import Figures, try_models
from tacit.study.tested import ALL_TESTED as ALL_TESTED
from tacit.study.tested import tested_clients as tested_clients
from tacit.training.evaluation import evaluate

if TYPE_CHECKING:
    from tacit.simulation.simulation import Simulation

Test = tuple[float | None, float | None]  # a client's loss and score on its local test
Tests = Sequence[Test]
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
        return {self.name: self(hits)} | ({} if self.name == "accuracy" else {"rmse": math.sqrt(hits) * self.spread})

    @property
    def nothing(self) -> dict[str, float | None]:
        """The same for a model that has none."""
        return dict.fromkeys(self.whole(0.0), None)


@dataclass(frozen=True)
class Tested:
    """A run's global model on the test set, and on the local tests of some clients."""

    whole: Figures
    who: list[int]
    central: list[Figures]


def test_runs(simulation: Simulation, cohorts: Sequence[tuple[RunState, Sequence[int]]]) -> list[Tested]:
    """Tests the global models of these runs, given the clients chosen for the round."""
    pool = simulation.pool
    models = [(state.server["x"], state.buffers) for state, _ in cohorts]
    whole = try_models(simulation, models, pool.test)
    who = [tested_clients(state.run, chosen) for state, chosen in cohorts]
    parts = [[state.test[client] for client in some] for (state, _), some in zip(cohorts, who, strict=True)]
    local = try_models(simulation, models, pool.train, [torch.cat(own) if own else NOBODY for own in parts])
    sizes = [[len(part) for part in own] for own in parts]
    central = [list(zip(*(x.split(n) for x in pair), strict=True)) for pair, n in zip(local, sizes, strict=True)]
    return [Tested(*one) for one in zip(whole, who, central, strict=True)]


def global_metrics(simulation: Simulation, state: RunState, tested: Tested) -> dict[str, Any]:
    """Loss and score of the global model on the test set, and how often an attack succeeds."""
    pool, attack = simulation.pool, state.run.attackers
    loss, hit = tested.whole
    found = {"loss": _mean(loss), **simulation.score.whole(_mean(hit))}
    if attack.measures:
        simulation.layout.load(simulation.module, state.server["x"], state.buffers)
        samples, aim = attack.probe(pool.test_x, pool.test_y)
        found[attack.measures] = _mean(evaluate(simulation.module, samples, aim)[1])
    return found


def local_metrics(simulation: Simulation, state: RunState, replies: Sequence[Reply], tests: Tested) -> dict[str, Any]:
    """The tested clients' metrics: on training samples as they worked through them, on their local tests afterwards.

    `local_accuracy`, `worst` and `spread` are the mean, the least and the standard deviation of the honest clients'
    local test accuracies, each with the model it uses; `central_accuracy` is that mean with the global model. A
    regression has `local_r2` and so on.
    """
    score, who = simulation.score, tests.who
    nothing: Tests = [(None, None)] * len(who)
    going, own = state.status == "running", is_personal(state.run)
    central = [_mean_pair(score, *pair) for pair in tests.central] if going else nothing
    tested = _personal_tests(simulation, state, who) if going and own else central
    return client_metrics(score, state, replies, list(zip(who, tested, central, strict=True)))


def client_metrics(
    score: Score, state: RunState, replies: Sequence[Reply], tests: Sequence[tuple[int, Test, Test]]
) -> dict[str, Any]:
    """The clients' metrics, given each one's test with the model it uses and with the global one."""
    trained = {reply.client: reply for reply in replies}
    who, tested, central = zip(*tests, strict=True) if tests else ((), (), ())
    clients = [
        _client_record(score, state, k, trained.get(k), (*test, whole[1]))
        for k, test, whole in zip(who, tested, central, strict=True)
    ]
    known = _honest_scores(state, who, tested)
    with np.errstate(over="ignore"):  # of a model about to diverge
        spread = float(np.std(known)) if known else None
    central_mean = _average(_honest_scores(state, who, central))
    means = {f"local_{score.name}": _average(known), f"central_{score.name}": central_mean}
    return {**means, "worst": min(known, default=None), "spread": spread, "clients": clients}


def losses_of_updates(simulation: Simulation, state: RunState) -> Callable[[Tensor, int], Tensor]:
    """The loss, on a sample of the server's own data, of the global model moved by each row. # (K, P) -> (K, 1)

    The sample is drawn anew each round.
    """

    def loss(dx: Tensor, size: int) -> Tensor:
        draw = generator(state.run.seed, "server loss", state.round)
        index = state.sample[torch.randperm(len(state.sample), generator=draw)[:size].to(state.sample.device)]
        samples = simulation.pool.train
        x, y, found = samples.features(index), samples.y[index], []
        for row in dx:  # one model at a time: rows may be many and models large
            simulation.layout.load(simulation.module, state.server["x"] + row, state.buffers)
            found.append(evaluate(simulation.module, x, y)[0].mean())
        return torch.stack(found)[:, None]

    return loss


def _client_record(
    score: Score,
    state: RunState,
    client: int,
    reply: Reply | None,
    tests: tuple[float | None, float | None, float | None],
) -> dict[str, Any]:
    """One client's figures; `tests` are the loss and score of its model, and the score of the global one."""
    found = {
        "client": client,
        "samples": len(state.train[client]),
        "steps": reply.figures[0] if reply else 0,
        "train_loss": reply.figures[1] if reply else None,
        f"train_{score.name}": score(reply.figures[2]) if reply else None,
        "test_loss": tests[0],
        f"test_{score.name}": tests[1],
    }
    found |= {f"central_{score.name}": tests[2]} if is_personal(state.run) else {}
    return found | ({"attacker": client in state.attackers} if state.attackers else {})


def _personal_tests(simulation: Simulation, state: RunState, who: Sequence[int]) -> Tests:
    """Each client's own model on its local test."""
    models = [personal_model(simulation, state, client) for client in who]
    found = try_models(simulation, models, simulation.pool.train, [state.test[client] for client in who])
    return [_mean_pair(simulation.score, *pair) for pair in found]


def _honest_scores(state: RunState, who: Sequence[int], tests: Tests) -> list[float]:
    """Of the clients that have a finite one: a model about to diverge may have none on some test."""
    pairs = zip(who, tests, strict=True)
    scores = [score for k, (_, score) in pairs if score is not None and k not in state.attackers]
    return [score for score in scores if math.isfinite(score)]


def _average(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean_pair(score: Score, loss: Tensor, hit: Tensor) -> tuple[float | None, float | None]:
    return (_mean(loss), score(_mean(hit))) if len(loss) else (None, None)


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
