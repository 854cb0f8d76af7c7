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
from typing import Any, ClassVar, Self

import torch
from torch import nn

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.seeds import derive
from tacit.models.own import is_own, make, recall, remember

ASK = "a class that has the parameters inputs and outputs is told both numbers"


@dataclass(frozen=True)
class Model(Registered, family="models", home="tacit.models.model"):
    """Base of the models.

    Your own torch module is a model too: by its import path, `package.module:Class`, as a class, as
    a function that makes it, or as the module itself.
    """

    takes_objects: ClassVar[bool] = True

    @classmethod
    def build(cls, spec: Any) -> Self:
        if is_own(spec):
            spec = {"name": "module", "path": remember(spec)}
        if isinstance(spec, str) and ":" in spec:
            value = recall(spec)
            if not (isinstance(value, type) and issubclass(value, cls)):
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
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


@dataclass(frozen=True)
class Cnn(Model, name="cnn"):
    """Two 5 x 5 convolutions (6, 16) with pooling, then 120-84-classes:
    62,006 parameters on 3 x 32 x 32."""

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise StudyError(
                "cnn needs pictures of 16 x 16 pixels or more,"
                f" got samples of shape {tuple(shape)}; use mlp"
            )
        channels, height, width = shape
        pixels = _pooled_twice(height) * _pooled_twice(width)
        features = [
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        head = [
            nn.Linear(16 * pixels, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        ]
        return nn.Sequential(*features, nn.Flatten(), *head)


def _pooled_twice(side: int) -> int:
    """A picture's side after two convolutions of width 5, each followed by pooling."""
    for _ in range(2):
        side = (side - 4) // 2
    return side


@dataclass(frozen=True)
class Imported(Model, name="module"):
    """Your own torch module, by import path: `path: package.module:Class`, with its `arguments`.

    Where its constructor has parameters called `inputs`, `outputs`, `classes` or `shape` and
    `arguments` does not give them, they are filled in: the number of features, of outputs (for both
    `outputs` and `classes`), and the shape of a sample.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def calls(self) -> str | None:
        return self.path

    def make(self, shape: Sequence[int], classes: int) -> nn.Module:
        maker = recall(self.path)
        try:
            module = make(maker, self.arguments, shape, classes)
        except StudyError as error:
            raise StudyError(f"{self.path}: {error}") from error.__cause__
        except Exception as error:  # whatever the user's code raises
            reason = f"{type(error).__name__}: {error}"
            arguments = dict(self.arguments)
            raise StudyError(f"{self.path} cannot be made with {arguments}: {reason}") from error
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise StudyError(f"{self.path}: expected a torch.nn.Module, got {kind}")
        return module


def make_module(
    model: Model, shape: Sequence[int], classes: int, seed: int, *name: str | int
) -> nn.Module:
    """The model, initialised from the seed (and name) alone.

    torch's global generator is left as it was. Frozen parameters are not part of a row, so all runs
    and clients must share them: they do not depend on the seed.
    """

    if isinstance(model, Imported):
        recall(model.path)  # imported before anything is seeded

    def initialise(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return model.make(shape, classes)

    module = initialise(derive(seed, "model", *name))
    frozen = {path: p for path, p in module.named_parameters() if not p.requires_grad}
    if frozen:
        shared = initialise(derive(0, "frozen parameters"))
        for path, parameter in frozen.items():
            parameter.data.copy_(shared.get_parameter(path))
    check_output(module, shape, classes)
    return module


@torch.no_grad()
def check_output(module: nn.Module, shape: Sequence[int], classes: int) -> None:
    """Refuses a model that does not fit the data, before anything is trained."""
    output = _try(module, shape)
    if isinstance(output, torch.Tensor):
        if output.shape == (2, classes):
            return
        actual = str(tuple(output.shape[1:]))
    else:
        actual = type(output).__name__
    wanted = "one number per sample"
    if classes > 1:
        wanted = f"{classes} numbers per sample, one for each class"
    raise StudyError(f"the model must give {wanted}; it gives {actual}; {ASK}")


def _try(module: nn.Module, shape: Sequence[int]) -> Any:
    """What the module gives for two samples of zeros."""
    training = module.training
    floats = [p for p in module.parameters() if p.is_floating_point()]
    like = floats[0] if floats else torch.zeros(0)
    samples = like.new_zeros(2, *shape)
    try:
        return module.eval()(samples)
    except Exception as error:  # whatever the user's code raises
        lines = str(error).splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0]}"
        raise StudyError(
            f"the model cannot take samples of shape {tuple(shape)}: {reason}; {ASK}"
        ) from error
    finally:
        module.train(training)
