"""Code that a user might write: functions that make data, models and an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from tacit.core.rows import Rows
from tacit.data.datasets import Dataset
from tacit.federated.algorithm import Algorithm
from tacit.federated.cohort import Cohort
from tacit.training.trainer import Work


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = rng.normal(size=(200, 4)) + 2 * y[:, None]
    return x, y


def make_crowd() -> Dataset:
    """Four samples for each of 5,000 clients, in three clouds."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (20_100,), generator=draw)
    x = torch.randn(len(y), 6, generator=draw)
    x[torch.arange(len(y)), y] += 3
    return Dataset("crowd", x[100:], y[100:], x[:100], y[:100], tuple("abc"))


def make_numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    slopes = np.array([1.0, -1.0, 0.5, 0.0])
    y = 5 + 2 * (x @ slopes) + rng.normal(0, 0.1, 200)
    return x, y


def make_nothing() -> None:
    return None


class Net(nn.Module):
    """A model with dropout and batch statistics, which are the hardest to train right."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(width, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def needy(argument: int) -> None:
    """A function that cannot be called without arguments."""


class HalfFrozen(nn.Sequential):
    """Random features that are not trained, and a layer that is."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 2))
        self[0].requires_grad_(False)


class Far(nn.Linear):
    """A model that starts far from anything sensible, and asks for the data's sizes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        nn.init.constant_(self.bias, 100.0)


READY = nn.Linear(4, 2)


@dataclass(frozen=True)
class Memorious(Algorithm):
    """Uses all that an algorithm can.

    That is memory, a second broadcast entry, full gradients and personal models.
    """

    pull: float = 0.5
    sends: ClassVar[tuple[str, ...]] = ("x", "turn")
    needs_rows: ClassVar[bool] = True

    @property
    def needs_full_gradient(self) -> bool:
        return True

    def server_init(self, x: torch.Tensor, population: int) -> dict[str, Any]:
        return {"x": x, "turn": 0.0}

    def client_init(self, x: torch.Tensor) -> Rows:
        return {"full": torch.zeros_like(x), "turns": torch.zeros_like(x[:, :1]), "born": x}

    def finish(self, w: torch.Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        assert work.full_gradient is not None
        message = {"dx": w - sent["x"] + 1e-3 * mine["full"], "turns": mine["turns"]}
        memory = {"full": work.full_gradient, "turns": mine["turns"] + 1, "born": mine["born"]}
        return message, memory

    def aggregate(self, server: Mapping[str, Any], cohort: Cohort) -> dict[str, Any]:
        assert (cohort.rows("turns") <= server["turn"]).all()
        return {"x": server["x"] + cohort.combine("dx"), "turn": server["turn"] + 1}

    def personal(self, sent: Rows, mine: Rows) -> torch.Tensor:
        return sent["x"] - self.pull * mine["full"]


def make_pictures() -> Dataset:
    """Noise of MNIST's shape."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(420, 1, 28, 28, generator=draw)
    y = torch.randint(0, 10, (420,), generator=draw)
    return Dataset("pictures", x[:400], y[:400], x[400:], y[400:], tuple("0123456789"))
