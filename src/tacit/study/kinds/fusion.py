"""Runs with a fusion: clients train networks alone, and the server makes one of them.

It matches the networks neuron by neuron.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from tacit.core.errors import DataError, StudyError
from tacit.data.dataset import Dataset
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.local import Local
from tacit.federated.fusion.dense import Dense, check_neurons
from tacit.federated.fusion.fusion import Fusion
from tacit.models.model import Mlp, Model
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.run import Run, setting
from tacit.study.texts import plain
from tacit.study.values import defaults_of
from tacit.training.losses import check_loss


@dataclass(frozen=True)
class FusionRun(Run, kind="fusion"):
    """Clients train alone, whatever algorithm the study names; then their networks are fused."""

    fusion: Fusion = setting(
        None,
        "clients train alone, then their networks are matched; see tacit list fusions",
        after="algorithm",
    )
    widths: tuple[int, ...] | None = setting(
        None,
        "with a fusion: the hidden width of each client's network, as [50, 80]; null: the model's",
        elsewhere="widths: only a fusion can combine networks of different widths;"
        " set a fusion, such as fusion: pfnm",
    )
    method_setting: ClassVar[str] = "fusion"
    replaces: ClassVar[frozenset[str]] = frozenset({"algorithm"})

    @classmethod
    def claims(cls, settings: Mapping[str, Any]) -> bool:
        return settings["fusion"] is not None

    def refusal(self, name: str, elsewhere: str | None) -> str:
        return (
            f"{self.fusion.name} fuses whole networks that every client has trained alone;"
            f" leave out {name}"
        )

    def check(self) -> None:
        Run.check(self)
        if self.widths is not None:
            self._check_widths(self.widths)

    def check_data(self, module: nn.Module, dataset: Dataset, sizes: Sequence[int]) -> None:
        check_loss(self.loss, dataset)
        name = self.fusion.name
        if self.fusion.weighs_classes and not dataset.classes:
            raise StudyError(
                f"{name} with class_weights needs classes, and these data have a number to predict"
            )
        try:
            check_neurons(module, dataset.x.shape[1:])
        except DataError as error:
            raise StudyError(f"{name} cannot fuse {self.model.name}: {error}") from None
        for layer, parameter in module.named_parameters():
            if not parameter.requires_grad:
                raise StudyError(f"{name} fuses what clients have trained, and {layer} is frozen")
        for client, size in enumerate(sizes):
            if not size:
                raise StudyError(
                    f"client {client} has no sample to train a network with;"
                    " use fewer clients or another split"
                )

    def cautions(self) -> list[str]:
        texts = Run.cautions(self)
        if self.initial == "same":
            text = (
                "all clients start from the same weights, so their neurons are in one order already"
                f" and {self.fusion.name} has little to do; set initial: different for networks"
                " that were made independently"
            )
            texts.insert(0, text)
        return texts

    @classmethod
    def study_cautions(cls, runs: Sequence[Run]) -> list[str]:
        """Names the algorithms of the study that average networks which cannot be averaged."""
        mixed = [run for run in runs if run.averages and run.initial == "different"]
        if not mixed:
            return []
        names = dict.fromkeys(run.client_algorithm.name for run in mixed)
        return [
            f"{', '.join(names)} averages networks that start from different weights, which"
            " makes them useless; use initial: same"
        ]

    @property
    def algorithm(self) -> Algorithm:
        """What clients do, whatever the study says of an algorithm."""
        return Local()

    @property
    def client_algorithm(self) -> Algorithm:
        return self.algorithm

    @property
    def keeps_client_models(self) -> bool:
        return True

    def model_of(self, client: int) -> Model:
        if self.widths is None or not isinstance(self.model, Mlp):
            return self.model
        return replace(self.model, hidden=(self.widths[client],) * len(self.model.hidden))

    @property
    def largest_model(self) -> Model:
        if self.widths is None:
            return self.model
        return self.model_of(self.widths.index(max(self.widths)))

    def shared_work(self) -> str | None:
        names = [item.name for item in fields(self) if item.name != "fusion"]
        return str(plain({name: getattr(self, name) for name in names}))

    def rebuilt(self, module: nn.Module, state: Mapping[str, Tensor], name: str) -> nn.Module:
        if not state:
            raise StudyError(
                f"{name} diverged before there was a fused network; use a smaller learning rate"
            )
        return Dense.of(state).module(module)  # as wide as the fusion made it

    def alone(self, model: Model) -> HorizontalRun:
        """What the clients with this model do: each trains alone."""
        settings = {item.name: getattr(self, item.name) for item in fields(Run)}
        settings |= {"algorithm": self.algorithm, "model": model}
        return HorizontalRun(**{**defaults_of(HorizontalRun), **settings})

    def _check_widths(self, widths: tuple[int, ...]) -> None:
        if not isinstance(self.model, Mlp):
            raise StudyError(
                "widths are those of an mlp's hidden layers;"
                f" leave them out with model: {self.model.name}"
            )
        if len(widths) != self.clients or min(widths) < 1:
            raise StudyError(
                f"widths: expected {self.clients} numbers of 1 or more, one for each client,"
                f" got {list(widths)}"
            )
        if self.fusion.one_width and len(set(widths)) > 1:
            raise StudyError(
                f"{self.fusion.name} needs networks of the same widths;"
                " leave out widths, or use pfnm or spahm"
            )
