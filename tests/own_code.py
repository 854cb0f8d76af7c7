"""What a user might write: a function that makes data, and a model."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    return rng.normal(size=(200, 4)) + 2 * y[:, None], y


def make_nothing() -> None:
    return None


class Net(nn.Module):
    """With dropout and batch statistics, to make it hard."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out
