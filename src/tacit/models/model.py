"""Models by name. A model is built for a task: the shape of a sample and the number of outputs.

>>> Model.build("linear").make((1, 8, 8), 10)
Sequential(
  (0): Flatten(start_dim=1, end_dim=-1)
  (1): Linear(in_features=64, out_features=10, bias=True)
)
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.seeds import derive
from tacit.models.own import is_own, make, recall, remember

ASK = "a class that has the parameters inputs and outputs is told both numbers"


@dataclass(frozen=True)
class Model(Registered, family="models", home="tacit.models.model"):
    """Base of the models. A module's own import path, `package.module:Class`, is a model too, and so are its class, a
    function that makes one and the module itself."""

    @classmethod
    def build(cls, spec: Any) -> Self:
        if is_own(spec):
            spec = {"name": "module", "path": remember(spec)}
        if isinstance(spec, str) and ":" in spec:
            found = recall(spec)
            if not (isinstance(found, type) and issubclass(found, cls)):
                spec = {"name": "module", "path": spec}
        return super().build(spec)

    @abstractmethod
    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        """The module, with torch's own random initialisation."""


@dataclass(frozen=True)
class Linear(Model, name="linear"):
    """One linear layer: multinomial logistic regression."""

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


@dataclass(frozen=True)
class Mlp(Model, name="mlp"):
    """Fully connected layers with ReLU between them; `hidden` lists their widths."""

    hidden: tuple[int, ...] = (64,)

    def __post_init__(self) -> None:
        if min(self.hidden, default=1) < 1:
            raise StudyError(f"mlp.hidden: expected widths of 1 or more, got {list(self.hidden)}")

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        widths = [math.prod(shape), *self.hidden]
        layers = [
            part for pair in itertools.pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())
        ]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], classes))


@dataclass(frozen=True)
class Cnn(Model, name="cnn"):
    """Two 5 x 5 convolutions (6, 16) with pooling, then 120-84-classes: 62,006 parameters on 3 x 32 x 32."""

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise StudyError(
                f"cnn needs pictures of 16 x 16 pixels or more, got samples of shape {tuple(shape)}; use mlp"
            )
        channels, height, width = shape
        left = 16 * math.prod(((side - 4) // 2 - 4) // 2 for side in (height, width))
        features = [
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        head = [
            nn.Linear(left, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        ]
        return nn.Sequential(*features, nn.Flatten(), *head)


@dataclass(frozen=True)
class Imported(Model, name="module"):
    """Your own torch module, by import path: `path: package.module:Class`, with its `arguments`.

    Where its constructor has parameters called `inputs`, `outputs`, `classes` or `shape` and `arguments` does not give
    them, they are filled in: the number of features, of outputs (twice), and the shape of a sample.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def calls(self) -> str | None:
        return self.path

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        found = recall(self.path)
        try:
            made = make(found, self.arguments, shape, classes)
        except Exception as error:  # whatever the user's code raises
            what = f"{type(error).__name__}: {error}"
            raise StudyError(
                f"{self.path} cannot be made with {dict(self.arguments)}: {what}"
            ) from error
        if not isinstance(made, nn.Module):
            raise StudyError(f"{self.path}: expected a torch.nn.Module, got {type(made).__name__}")
        return made


def make_module(
    model: Model, shape: Sequence[int], classes: int, seed: int, *name: str | int
) -> nn.Module:
    """The model, initialised from the seed (and name) alone; torch's global generator is left as it was.

    Frozen parameters are not part of a row, so all runs and clients must share them: they follow from no seed.
    """

    if isinstance(model, Imported):
        recall(model.path)  # imported before anything is seeded

    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return model.make(shape, classes)

    module = make(derive(seed, "model", *name))
    if frozen := {name: p for name, p in module.named_parameters() if not p.requires_grad}:
        shared = make(derive(0, "frozen parameters"))
        for path, parameter in frozen.items():
            parameter.data.copy_(shared.get_parameter(path))
    check_output(module, shape, classes)
    return module


@torch.no_grad()
def check_output(module: nn.Module, shape: Sequence[int], classes: int) -> None:
    """Refuses a model that does not fit the data, before anything is trained."""
    training = module.training
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(0))
    try:
        output = module.eval()(like.new_zeros(2, *shape))
    except Exception as error:  # whatever the user's code raises
        what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise StudyError(
            f"the model cannot take samples of shape {tuple(shape)}: {what}; {ASK}"
        ) from error
    finally:
        module.train(training)
    if not isinstance(output, torch.Tensor) or output.shape != (2, classes):
        came = (
            tuple(output.shape[1:]) if isinstance(output, torch.Tensor) else type(output).__name__
        )
        wanted = (
            f"{classes} numbers per sample, one for each class"
            if classes > 1
            else "one number per sample"
        )
        raise StudyError(f"the model must give {wanted}; it gives {came}; {ASK}")
