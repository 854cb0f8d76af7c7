"""pfl-research: its simulated backend in one process, federated averaging weighted by samples.

Its algorithm measures every client before and after the first round's training; the others do not, so that is switched
off. Its own callback for the test set leaves out the first round; ours measures after each, by the same function. Its
data sets do not shuffle, so the order is drawn where a client's data set is made, anew each round.
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
    """The task's model, with the loss and the metrics that pfl asks of one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = make_model()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return functional.cross_entropy(self.body(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.eval()
        return {"accuracy": Weighted(int((self.body(x).argmax(1) == y).sum()), len(y))}


class Unmeasured(FederatedAveraging):
    """Without the clients' metrics."""

    def get_next_central_contexts(self, *args: Any, **settings: Any) -> Any:
        contexts, *rest = super().get_next_central_contexts(*args, **settings)
        return contexts and tuple(replace(one, do_evaluation=False) for one in contexts), *rest


class Tests(TrainingProcessCallback):
    """The test set after every round."""

    def __init__(self, clock: Clock, data: Dataset) -> None:
        self.clock, self.data = clock, data

    def on_train_begin(self, *, model: Any) -> Metrics:
        self.clock.start()
        return Metrics()

    def after_central_iteration(
        self, metrics: Metrics, model: Any, *, central_iteration: int
    ) -> Any:
        found = dict(
            model.evaluate(self.data, eval_params=NNEvalHyperParams(local_batch_size=TEST_BATCH))
        )
        self.clock.round_done(get_overall_value(next(iter(found.values()))))
        return False, Metrics()


def main() -> None:
    task, clock = Task.given(), Clock()
    np.random.seed(0)
    _, _, test_x, test_y = load(task.samples)
    shares = [client_data(task, k) for k in range(task.clients)]

    def shuffled(client: int) -> Dataset:
        x, y = shares[client]
        order = torch.randperm(len(y))
        return Dataset((x[order], y[order]), user_id=str(client))

    data = FederatedDataset(shuffled, get_user_sampler("minimize_reuse", list(range(task.clients))))
    net = Net()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    Unmeasured().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=task.rounds,
            evaluation_frequency=task.rounds,
            train_cohort_size=task.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=task.lr, local_num_epochs=1, local_batch_size=task.batch
        ),
        callbacks=[Tests(clock, Dataset((test_x, test_y)))],
    )
    clock.report(name="pfl-research", version=version("pfl"))


if __name__ == "__main__":
    main()
