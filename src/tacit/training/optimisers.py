"""Local optimisers on rows: `init` makes the state, `update` returns the next parameters and state.

Each is the rule of its `torch.optim` namesake. Inside `update` the float fields are (K, 1) columns, one value per row
(see `core/rows.py`), so one call steps the clients of many runs.

>>> w, g = torch.ones(2, 3), torch.ones(2, 3)
>>> rule = columns([SGD(lr=0.1), SGD(lr=0.5)], SGD, w)
>>> rule.update(w, g, rule.init(w))[0][:, 0]
tensor([0.9000, 0.5000])
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.rows import Rows, columns  # noqa: F401  (columns is for the example above)


@dataclass(frozen=True)
class Optimiser(Registered, family="optimisers", home="tacit.training.optimisers"):
    """Base of the local optimisers. `weight_decay` adds that multiple of the parameters to the gradient."""

    lr: float = 0.01
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise StudyError(f"{self.name}.lr: expected a number above 0, got {self.lr}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise StudyError(f"{self.name}.weight_decay: expected 0 or more, got {self.weight_decay}")
        if not (eps := getattr(self, "eps", 0)) >= 0:
            raise StudyError(f"{self.name}.eps: expected 0 or more, got {eps}")
        for share in ("momentum", "rho", "beta1", "beta2"):
            if not 0 <= getattr(self, share, 0) < 1:
                raise StudyError(f"{self.name}.{share}: expected 0 or more and below 1, got {getattr(self, share)}")

    def init(self, w: Tensor) -> Rows:
        """The state before the first step."""
        return {}

    def update(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """One step: the next parameters and state."""
        return self.step(w, g if self.weight_decay is None else g + self.weight_decay * w, state)

    @abstractmethod
    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """The rule itself; `update` has added the weight decay."""


@dataclass(frozen=True)
class SGD(Optimiser, name="sgd"):
    """Stochastic gradient descent: w <- w - lr g."""

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        return w - self.lr * g, state


@dataclass(frozen=True)
class Momentum(Optimiser, name="momentum"):
    """Polyak's heavy ball: v <- momentum v + g; w <- w - lr v."""

    momentum: float = 0.9

    def init(self, w: Tensor) -> Rows:
        return {"v": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = g + self.momentum * state["v"]
        return w - self.lr * v, {"v": v}


@dataclass(frozen=True)
class Nesterov(Optimiser, name="nesterov"):
    """Nesterov's accelerated gradient, at the shifted point: v <- momentum v + g; w <- w - lr (g + momentum v)."""

    momentum: float = 0.9

    def init(self, w: Tensor) -> Rows:
        return {"v": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = g + self.momentum * state["v"]
        return w - self.lr * (g + self.momentum * v), {"v": v}


@dataclass(frozen=True)
class Adagrad(Optimiser, name="adagrad"):
    """Duchi, Hazan, Singer, 2011: s <- s + g^2; w <- w - lr g / (sqrt(s) + eps)."""

    eps: float = 1e-10

    def init(self, w: Tensor) -> Rows:
        return {"s": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.addcmul(state["s"], g, g)
        return w - self.lr * g / (s.sqrt() + self.eps), {"s": s}


@dataclass(frozen=True)
class Adadelta(Optimiser, name="adadelta"):
    """Zeiler, 2012: s, u are running means of g^2, d^2; d = sqrt(u + eps) / sqrt(s + eps) g; w <- w - lr d."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    def init(self, w: Tensor) -> Rows:
        return {"s": torch.zeros_like(w), "u": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.lerp(state["s"], g * g, 1 - self.rho)
        d = ((state["u"] + self.eps) / (s + self.eps)).sqrt() * g
        return w - self.lr * d, {"s": s, "u": torch.lerp(state["u"], d * d, 1 - self.rho)}


@dataclass(frozen=True)
class Adam(Optimiser, name="adam"):
    """Kingma, Ba, 2015: m, v are running means of g, g^2; w <- w - lr mhat / (sqrt(vhat) + eps)."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, w: Tensor) -> Rows:
        zeros = torch.zeros_like(w)
        return {"m": zeros, "v": zeros, "s1": zeros[:, :1], "s2": zeros[:, :1]}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        # m and v are the bias-corrected means: the t-th gradient weighs (1 - beta) / (1 - beta^t) = 1 / s,
        # s = 1 + beta + ... + beta^(t-1), which has no 1 - beta^t to cancel in.
        s1, s2 = 1 + self.beta1 * state["s1"], 1 + self.beta2 * state["s2"]
        m = torch.lerp(state["m"], g, 1 / s1)
        v = torch.lerp(state["v"], g * g, 1 / s2)
        return w - self.lr * (m / v.sqrt().add_(self.eps)), {"m": m, "v": v, "s1": s1, "s2": s2}
