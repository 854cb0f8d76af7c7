# ruff: noqa: E402 (fluke can be imported only after the stand-in for torchvision)
"""fluke: its own FedAvg with everything in memory; the server measures accuracy after each round.

fluke imports torchvision, which the task does not need. Where it is not installed, modules with
empty classes stand in for it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Any

from torchmetrics import Accuracy  # before any stand-in, because it looks for torchvision itself

NAMES = {
    "torchvision": ("datasets",),
    "torchvision.datasets": ("VisionDataset", "ImageFolder"),
    "torchvision.datasets.utils": ("download_and_extract_archive",),
    "torchvision.models": ("resnet18", "resnet34", "resnet50"),
    "torchvision.transforms": ("Lambda", "ToTensor"),
}
if importlib.util.find_spec("torchvision") is None:
    for module_name, names in NAMES.items():
        module = ModuleType(module_name)
        # some libraries look at a module's specification before they import it
        module.__spec__ = ModuleSpec(module_name, None)
        for name in names:
            empty_class = type(name, (), {})
            setattr(module, name, empty_class)
        sys.modules[module_name] = module

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataContainer, DataSplitter
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver, ServerObserver
from peers.task import TEST_BATCH, Clock, Task, load, make_model, warm_up
from torch.nn import CrossEntropyLoss


class Listener(ServerObserver, FederationObserver):
    """Passes every round's accuracy to the clock."""

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


def prepare_fluke() -> None:
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
    accuracy = Accuracy(task="multiclass", num_classes=10, top_k=1)
    environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=10, accuracy=accuracy))


def main() -> None:
    task = Task.from_command_line()
    clock = Clock()
    prepare_fluke()
    data = DataSplitter(DataContainer(*load(task.samples), 10), distribution="iid")
    client = DDict(
        batch_size=task.batch,
        local_epochs=1,
        loss=CrossEntropyLoss,
        optimizer=DDict(name="SGD", lr=task.lr, fused=True),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1),
    )
    settings = DDict(model=make_model(), client=client, server=DDict(weighted=True))
    algorithm = FedAVG(task.clients, data, settings)
    algorithm.server.test_set.batch_size = TEST_BATCH
    algorithm.set_callbacks([Listener(clock)])
    warm_up()
    algorithm.run(task.rounds, 1.0)
    clock.report(name="fluke", version=version("fluke-fl"))


if __name__ == "__main__":
    main()
