"""Flower's simulation on Ray: message API, its own FedAvg, the server tests after each round.

Clients run in `cores / cores_per_client` actors side by side. Each actor reads the data once and
keeps them, as in Flower's examples.
"""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_DEDUP_LOGS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

import flwr
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.task import Clock, Task, client_data, load, make_model, test, train


def make_client(task: Task) -> ClientApp:
    app = ClientApp()

    @app.train()
    def work(message: Message, context: Context) -> Message:
        torch.set_num_threads(task.cores_per_client)
        model = make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = client_data(task, int(context.node_config["partition-id"]))
        train(model, x, y, task)
        reply = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def make_server(task: Task, clock: Clock) -> ServerApp:
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, _: Context) -> None:
        model = make_model()

        def measure(turn: int, arrays: ArrayRecord) -> MetricRecord:
            model.load_state_dict(arrays.to_torch_state_dict())
            accuracy = test(model, task)
            if turn == 0:  # before the first round
                clock.start()
            else:
                clock.round_done(accuracy)
            return MetricRecord({"accuracy": accuracy})

        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=task.clients, min_available_nodes=task.clients
        )
        first = ArrayRecord(model.state_dict())
        strategy.start(grid, first, num_rounds=task.rounds, evaluate_fn=measure)

    return app


def main() -> None:
    task = Task.from_command_line()
    clock = Clock()
    load(task.samples)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    ray: dict[str, Any] = {
        "num_cpus": task.cores,
        "logging_level": logging.ERROR,
        "log_to_driver": False,
    }
    client: dict[str, Any] = {"num_cpus": task.cores_per_client, "num_gpus": 0.0}
    run_simulation(
        make_server(task, clock),
        make_client(task),
        num_supernodes=task.clients,
        backend_config={"init_args": ray, "client_resources": client},
    )
    clock.report(name="Flower", version=flwr.__version__)


if __name__ == "__main__":
    main()
