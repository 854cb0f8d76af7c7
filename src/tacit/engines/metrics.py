"""What is measured after every round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.core.seeds import generator
from tacit.engines.clients import Reply, personal_model
from tacit.engines.state import RunState, is_personal
from tacit.federated.wire.attackers import Backdoor
from tacit.training.evaluation import evaluate

if TYPE_CHECKING:
    from tacit.engines.simulation import Simulation

Tests = list[tuple[float | None, float | None]]  # each client's loss and accuracy on its local test


def global_metrics(simulation: Simulation, state: RunState) -> dict[str, Any]:
    """Loss and accuracy of the global model on the test set, and how often a backdoor opens."""
    pool, attack = simulation.pool, state.run.attackers
    simulation.layout.load(simulation.module, state.server["x"], state.buffers)
    loss, hit = evaluate(simulation.module, pool.test_x, pool.test_y)
    found = {"loss": _mean(loss), "accuracy": _mean(hit)}
    if isinstance(attack, Backdoor):
        others = pool.test_x[pool.test_y != attack.target]
        aim = torch.full((len(others),), attack.target, device=others.device)
        found["backdoor"] = _mean(evaluate(simulation.module, attack.trigger(others), aim)[1])
    return found


def local_metrics(simulation: Simulation, state: RunState, replies: Sequence[Reply]) -> dict[str, Any]:
    """Each client's metrics: on its training samples as it worked through them, on its local test afterwards.

    `local_accuracy`, `worst` and `spread` are the mean, the least and the standard deviation of the honest clients'
    local test accuracies, each with the model it uses; `central_accuracy` is that mean with the global model.
    """
    trained = {reply.client: reply for reply in replies}
    nothing: Tests = [(None, None)] * state.run.clients
    going, own = state.status == "running", is_personal(state.run)
    central = _central_tests(simulation, state) if going else nothing
    tested = _personal_tests(simulation, state) if going and own else central
    clients = [
        _client_record(state, k, trained.get(k), test, whole[1] if own else None)
        for k, (test, whole) in enumerate(zip(tested, central, strict=True))
    ]
    known = _honest_accuracies(state, tested)
    spread = statistics.pstdev(known) if known else None
    means = {"local_accuracy": _average(known), "central_accuracy": _average(_honest_accuracies(state, central))}
    return {**means, "worst": min(known, default=None), "spread": spread, "clients": clients}


def losses_of_updates(simulation: Simulation, state: RunState) -> Callable[[Tensor, int], Tensor]:
    """The loss, on a sample of the server's own data, of the global model moved by each row. # (K, P) -> (K, 1)

    The sample is drawn anew each round.
    """

    def loss(dx: Tensor, size: int) -> Tensor:
        draw = generator(state.run.seed, "server loss", state.round)
        index = state.sample[torch.randperm(len(state.sample), generator=draw)[:size].to(state.sample.device)]
        x, y, found = simulation.pool.x[index], simulation.pool.y[index], []
        for row in dx:  # one model at a time: rows may be many and models large
            simulation.layout.load(simulation.module, state.server["x"] + row, state.buffers)
            found.append(evaluate(simulation.module, x, y)[0].mean())
        return torch.stack(found)[:, None]

    return loss


def _client_record(
    state: RunState,
    client: int,
    reply: Reply | None,
    test: tuple[float | None, float | None],
    central: float | None,
) -> dict[str, Any]:
    found = {
        "client": client,
        "samples": len(state.train[client]),
        "steps": int(reply.steps) if reply else 0,
        "train_loss": float(reply.loss) if reply else None,
        "train_accuracy": float(reply.accuracy) if reply else None,
        "test_loss": test[0],
        "test_accuracy": test[1],
    }
    found |= {"central_accuracy": central} if is_personal(state.run) else {}
    return found | ({"attacker": client in state.attackers} if state.attackers else {})


def _central_tests(simulation: Simulation, state: RunState) -> Tests:
    """The global model on every client's local test, in one pass."""
    index = torch.cat(state.test)
    simulation.layout.load(simulation.module, state.server["x"], state.buffers)
    loss, hit = evaluate(simulation.module, simulation.pool.x[index], simulation.pool.y[index])
    sizes = [len(part) for part in state.test]
    return [_mean_pair(*pair) for pair in zip(loss.split(sizes), hit.split(sizes), strict=True)]


def _personal_tests(simulation: Simulation, state: RunState) -> Tests:
    """Each client's own model on its local test."""
    found = []
    for client, index in enumerate(state.test):
        simulation.layout.load(simulation.module, *personal_model(simulation, state, client))
        found.append(_mean_pair(*evaluate(simulation.module, simulation.pool.x[index], simulation.pool.y[index])))
    return found


def _honest_accuracies(state: RunState, tests: Tests) -> list[float]:
    return [accuracy for k, (_, accuracy) in enumerate(tests) if accuracy is not None and k not in state.attackers]


def _average(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _mean_pair(loss: Tensor, hit: Tensor) -> tuple[float | None, float | None]:
    return (_mean(loss), _mean(hit)) if len(loss) else (None, None)


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
