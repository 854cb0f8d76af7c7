"""pfl-research: its simulated backend in one process, federated averaging weighted by samples.

Its algorithm measures every client before and after the first round's training. The other
frameworks do not, so that is switched off. Its callback for the test set leaves out the first
round; the one here measures after every round, by the same function. Its data sets do not shuffle,
so a new order is drawn each round, where a client's data set is made.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from peers.task import TEST_BATCH, Clock, Task, client_data, load, make_model
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted, get_overall_value
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional


class Net(nn.Module):
    """The task's model, with the loss and the metrics that pfl requires."""

    def __init__(self) -> None:
        super().__init__()
        self.body = make_model()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return functional.cross_entropy(self.body(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.eval()
        hits = self.body(x).argmax(1) == y
        return {"accuracy": Weighted(int(hits.sum()), len(y))}


class Unmeasured(FederatedAveraging):
    """Federated averaging that does not measure the clients."""

    def get_next_central_contexts(self, *args: Any, **settings: Any) -> Any:
        contexts, *rest = super().get_next_central_contexts(*args, **settings)
        if contexts:
            contexts = tuple(replace(context, do_evaluation=False) for context in contexts)
        return contexts, *rest


class Tests(TrainingProcessCallback):
    """Measures the accuracy on the test set after every round."""

    def __init__(self, clock: Clock, data: Dataset) -> None:
        self.clock = clock
        self.data = data

    def on_train_begin(self, *, model: Any) -> Metrics:
        self.clock.start()
        return Metrics()

    def after_central_iteration(
        self, metrics: Metrics, model: Any, *, central_iteration: int
    ) -> Any:
        settings = NNEvalHyperParams(local_batch_size=TEST_BATCH)
        measured = dict(model.evaluate(self.data, eval_params=settings))
        accuracy = next(iter(measured.values()))  # the only metric
        self.clock.round_done(get_overall_value(accuracy))
        return False, Metrics()


def federated(task: Task) -> FederatedDataset:
    """The clients' data, shuffled anew whenever a client is chosen."""
    shares = [client_data(task, k) for k in range(task.clients)]

    def shuffled(client: int) -> Dataset:
        x, y = shares[client]
        order = torch.randperm(len(y))
        return Dataset((x[order], y[order]), user_id=str(client))

    sampler = get_user_sampler("minimize_reuse", list(range(task.clients)))
    return FederatedDataset(shuffled, sampler)


def main() -> None:
    task = Task.from_command_line()
    clock = Clock()
    np.random.seed(0)
    _, _, test_x, test_y = load(task.samples)
    data = federated(task)
    net = Net()
    server_optimiser = torch.optim.SGD(net.parameters(), lr=1.0)
    model = PyTorchModel(net, torch.optim.SGD, server_optimiser)
    rounds = NNAlgorithmParams(
        central_num_iterations=task.rounds,
        evaluation_frequency=task.rounds,
        train_cohort_size=task.clients,
        val_cohort_size=0,
    )
    local_training = NNTrainHyperParams(
        local_learning_rate=task.lr, local_num_epochs=1, local_batch_size=task.batch
    )
    Unmeasured().run(
        algorithm_params=rounds,
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=local_training,
        callbacks=[Tests(clock, Dataset((test_x, test_y)))],
    )
    clock.report(name="pfl-research", version=version("pfl"))


if __name__ == "__main__":
    main()
