# ruff: noqa: E402 (fluke can be imported only after what stands in for torchvision)
"""fluke: its own FedAvg, everything in memory, the server's test after each round, accuracy the only metric.

fluke imports torchvision, which the task does not need; where it is not installed, empty names stand in its place.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Any

from torchmetrics import Accuracy  # before any stand-in: it looks for torchvision, and does without

NAMES = {
    "torchvision": ("datasets",),
    "torchvision.datasets": ("VisionDataset", "ImageFolder"),
    "torchvision.datasets.utils": ("download_and_extract_archive",),
    "torchvision.models": ("resnet18", "resnet34", "resnet50"),
    "torchvision.transforms": ("Lambda", "ToTensor"),
}
if importlib.util.find_spec("torchvision") is None:
    for place, names in NAMES.items():
        sys.modules[place] = module = ModuleType(place)
        module.__spec__ = ModuleSpec(place, None)  # some libraries ask for it before they import
        for name in names:
            setattr(module, name, type(name, (), {}))

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataContainer, DataSplitter
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver, ServerObserver
from peers.task import TEST_BATCH, Clock, Task, load, make_model, warm_up
from torch.nn import CrossEntropyLoss


class Listener(ServerObserver, FederationObserver):
    """Hears every round's accuracy."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.accuracy = 0.0

    def start_round(self, round: int, global_model: Any) -> None:
        if round == 1:
            self.clock.start()

    def server_evaluation(self, round: int, eval_type: str, evals: Any, **_: Any) -> None:
        self.accuracy = evals.get("accuracy", self.accuracy)

    def end_round(self, round: int) -> None:
        self.clock.round_done(self.accuracy)


def main() -> None:
    task, clock = Task.given(), Clock()
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
    accuracy = Accuracy(task="multiclass", num_classes=10, top_k=1)
    environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=10, accuracy=accuracy))
    data = DataSplitter(DataContainer(*load(task.samples), 10), distribution="iid")
    settings = DDict(
        model=make_model(),
        client=DDict(
            batch_size=task.batch,
            local_epochs=1,
            loss=CrossEntropyLoss,
            optimizer=DDict(name="SGD", lr=task.lr, fused=True),
            scheduler=DDict(name="StepLR", step_size=1, gamma=1),
        ),
        server=DDict(weighted=True),
    )
    algorithm = FedAVG(task.clients, data, settings)
    algorithm.server.test_set.batch_size = TEST_BATCH
    algorithm.set_callbacks([Listener(clock)])
    warm_up()
    algorithm.run(task.rounds, 1.0)
    clock.report(name="fluke", version=version("fluke-fl"))


if __name__ == "__main__":
    main()
