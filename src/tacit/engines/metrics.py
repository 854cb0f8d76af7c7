"""What is measured after every round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.engines.state import RunState, broadcast, client_class, client_view, memory_of
from tacit.federated.algorithm import Algorithm
from tacit.training.evaluation import evaluate

if TYPE_CHECKING:
    from tacit.engines.simulation import Reply, Simulation


def global_metrics(simulation: Simulation, state: RunState) -> dict[str, Any]:
    """Loss and accuracy of the global model on the test set."""
    pool = simulation.pool
    simulation.layout.load(simulation.module, state.server["x"], state.buffers)
    loss, hit = evaluate(simulation.module, pool.test_x, pool.test_y)
    return {"loss": _mean(loss), "accuracy": _mean(hit)}


def local_metrics(simulation: Simulation, state: RunState, replies: Sequence[Reply]) -> dict[str, Any]:
    """Each client's metrics: on its training samples as it worked through them, on its local test afterwards.

    `worst` and `spread` are the lowest local test accuracy and the standard deviation over clients.
    """
    trained = {reply.client: reply for reply in replies}
    tested = _local_tests(simulation, state) if state.status == "running" else [(None, None)] * state.run.clients
    clients = []
    for k, (loss, accuracy) in enumerate(tested):
        reply = trained.get(k)
        clients.append(
            {
                "client": k,
                "samples": len(state.train[k]),
                "steps": int(reply.steps) if reply else 0,
                "train_loss": float(reply.loss) if reply else None,
                "train_accuracy": float(reply.accuracy) if reply else None,
                "test_loss": loss,
                "test_accuracy": accuracy,
            }
        )
    known = [accuracy for _, accuracy in tested if accuracy is not None]
    spread = statistics.pstdev(known) if known else None
    return {"worst": min(known, default=None), "spread": spread, "clients": clients}


def losses_of_updates(simulation: Simulation, state: RunState) -> Callable[[Tensor], Tensor]:
    """The loss, on the server's own sample, of the global model moved by each row. # (K, P) -> (K, 1)"""
    x, y = simulation.pool.x[state.sample], simulation.pool.y[state.sample]

    def loss(dx: Tensor) -> Tensor:
        found = []
        for row in dx:  # one model at a time: rows may be many and models large
            simulation.layout.load(simulation.module, state.server["x"] + row, state.buffers)
            found.append(evaluate(simulation.module, x, y)[0].mean())
        return torch.stack(found)[:, None]

    return loss


def _local_tests(simulation: Simulation, state: RunState) -> list[tuple[float | None, float | None]]:
    if client_class(type(state.run.algorithm)).personal is not Algorithm.personal:
        return [_mean_pair(*_own_test(simulation, state, k)) for k in range(state.run.clients)]
    index = torch.cat(state.test)  # one model for all, so one pass
    simulation.layout.load(simulation.module, state.server["x"], state.buffers)
    loss, hit = evaluate(simulation.module, simulation.pool.x[index], simulation.pool.y[index])
    sizes = [len(part) for part in state.test]
    return [_mean_pair(*pair) for pair in zip(loss.split(sizes), hit.split(sizes), strict=True)]


def _own_test(simulation: Simulation, state: RunState, client: int) -> tuple[Tensor, Tensor]:
    sent = broadcast(state)
    row = client_view([state], sent["x"]).personal(sent, memory_of(state, client))[0]
    simulation.layout.load(simulation.module, row, state.buffers)
    index = state.test[client]
    return evaluate(simulation.module, simulation.pool.x[index], simulation.pool.y[index])


def _mean_pair(loss: Tensor, hit: Tensor) -> tuple[float | None, float | None]:
    return (_mean(loss), _mean(hit)) if len(loss) else (None, None)


def _mean(values: Tensor) -> float:
    return values.double().mean().item()
