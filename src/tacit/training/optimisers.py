"""Local optimisers on rows: `init` makes the state, `update` returns the next parameters and state.

Each follows the rule of its `torch.optim` namesake. Inside `update` the float fields are (K, 1)
columns, one value per row (see `core/rows.py`), so one call steps the clients of many runs. On a
CPU, where rows come one by one, most rules have a second form with plain numbers and fewer passes
over the row: `lean_update` returns it.

>>> from tacit.core.rows import columns
>>> w, g = torch.ones(2, 3), torch.ones(2, 3)
>>> rule = columns([SGD(lr=0.1), SGD(lr=0.5)], SGD, w)
>>> rule.update(w, g, rule.init(w))[0][:, 0]
tensor([0.9000, 0.5000])
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.fields import field_types
from tacit.core.registry import Registered
from tacit.core.rows import Rows, join, pick, replaced
from tacit.core.torch_private import step_adam

# (w, g, state) -> (w, state), for K rows
UpdateFunction = Callable[[Tensor, Tensor, Rows], tuple[Tensor, Rows]]


@dataclass(frozen=True)
class Optimiser(Registered, family="optimisers", home="tacit.training.optimisers"):
    """Base of the local optimisers.

    `weight_decay` adds that multiple of the parameters to the gradient.
    """

    lr: float = 0.01
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise StudyError(f"{self.name}.lr: expected a number above 0, got {self.lr}")
        decay = self.weight_decay
        if decay is not None and not 0 <= decay < math.inf:
            raise StudyError(f"{self.name}.weight_decay: expected 0 or more, got {decay}")
        eps = getattr(self, "eps", 0)
        if not eps >= 0:
            raise StudyError(f"{self.name}.eps: expected 0 or more, got {eps}")
        for field in ("momentum", "rho", "beta1", "beta2"):
            value = getattr(self, field, 0)
            if not 0 <= value < 1:
                raise StudyError(
                    f"{self.name}.{field}: expected 0 or more and below 1, got {value}"
                )

    def init(self, w: Tensor) -> Rows:
        """The state before the first step."""
        return {}

    def update(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """One step: the next parameters and state."""
        if self.weight_decay is not None:
            g = g + self.weight_decay * w
        return self.step(w, g, state)

    @abstractmethod
    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """The rule itself; `update` has added the weight decay."""

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """`step` on one row, where the float fields are plain numbers.

        It equals `step` up to rounding, and like it changes none of its arguments.
        """
        return self.step(w, g, state)


def lean_update(rule: Optimiser, w: Tensor) -> UpdateFunction:
    """`rule.update` or, on a CPU, the rule's lean form if it has one.

    The lean form steps row by row, so that a row's bits do not depend on the other rows.
    """
    if w.device.type != "cpu" or not _is_lean(type(rule)):
        return rule.update
    updates = [_plain_update(rule, k) for k in range(len(w))]
    if len(updates) == 1:
        return updates[0]
    return partial(_update_each, updates)


def _is_lean(rule: type[Optimiser]) -> bool:
    """Whether the lean form belongs to the rule's own step.

    A class that overrides the step or the update alone has no lean form.
    """
    same_class = _defining_class(rule, "lean") is _defining_class(rule, "step")
    return same_class and _defining_class(rule, "update") is Optimiser


def _defining_class(rule: type[Optimiser], method: str) -> type:
    return next(cls for cls in rule.__mro__ if method in vars(cls))


def _plain_update(rule: Optimiser, k: int) -> UpdateFunction:
    """The lean form of row k, whose numbers are read once."""
    numbers = {}
    for name, annotation in field_types(type(rule)).items():
        if annotation is float:
            numbers[name] = getattr(rule, name)[k].item()
    plain = replaced(rule, **numbers)
    decay = plain.weight_decay
    if decay is None:
        return plain.lean

    def update(w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        decayed = torch.add(g, w, alpha=decay)
        return plain.lean(w, decayed, state)

    return update


def _update_each(
    updates: list[UpdateFunction], w: Tensor, g: Tensor, state: Rows
) -> tuple[Tensor, Rows]:
    """Row k by `updates[k]`."""
    rows = []
    states = []
    for k, update in enumerate(updates):
        row = slice(k, k + 1)
        row_w, row_state = update(w[row], g[row], pick(state, row))
        rows.append(row_w)
        states.append(row_state)
    return torch.cat(rows), join(states)


@dataclass(frozen=True)
class SGD(Optimiser, name="sgd"):
    """Stochastic gradient descent: w <- w - lr g."""

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        return w - self.lr * g, state

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        return torch.add(w, g, alpha=-self.lr), state


@dataclass(frozen=True)
class Momentum(Optimiser, name="momentum"):
    """Polyak's heavy ball: v <- momentum v + g; w <- w - lr v."""

    momentum: float = 0.9

    def init(self, w: Tensor) -> Rows:
        return {"v": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = g + self.momentum * state["v"]
        w = w - self.lr * v
        return w, {"v": v}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = torch.add(g, state["v"], alpha=self.momentum)
        w = torch.add(w, v, alpha=-self.lr)
        return w, {"v": v}


@dataclass(frozen=True)
class Nesterov(Optimiser, name="nesterov"):
    """Nesterov's accelerated gradient, at the shifted point: v <- momentum v + g;
    w <- w - lr (g + momentum v).
    """

    momentum: float = 0.9

    def init(self, w: Tensor) -> Rows:
        return {"v": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = g + self.momentum * state["v"]
        w = w - self.lr * (g + self.momentum * v)
        return w, {"v": v}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = torch.add(g, state["v"], alpha=self.momentum)
        ahead = torch.add(g, v, alpha=self.momentum)
        w = torch.add(w, ahead, alpha=-self.lr)
        return w, {"v": v}


@dataclass(frozen=True)
class Adagrad(Optimiser, name="adagrad"):
    """Duchi, Hazan, Singer, 2011: s <- s + g^2; w <- w - lr g / (sqrt(s) + eps)."""

    eps: float = 1e-10

    def init(self, w: Tensor) -> Rows:
        return {"s": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.addcmul(state["s"], g, g)
        w = w - self.lr * g / (s.sqrt() + self.eps)
        return w, {"s": s}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.addcmul(state["s"], g, g)
        divisor = s.sqrt().add_(self.eps)
        w = torch.addcdiv(w, g, divisor, value=-self.lr)
        return w, {"s": s}


@dataclass(frozen=True)
class Adadelta(Optimiser, name="adadelta"):
    """Zeiler, 2012: s, u are running means of g^2, d^2; d = sqrt(u + eps) / sqrt(s + eps) g;
    w <- w - lr d.
    """

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    def init(self, w: Tensor) -> Rows:
        return {"s": torch.zeros_like(w), "u": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.lerp(state["s"], g * g, 1 - self.rho)
        d = ((state["u"] + self.eps) / (s + self.eps)).sqrt() * g
        w = w - self.lr * d
        u = torch.lerp(state["u"], d * d, 1 - self.rho)
        return w, {"s": s, "u": u}


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
        # m and v are the bias-corrected means: the t-th gradient weighs
        # (1 - beta) / (1 - beta^t) = 1 / s with s = 1 + beta + ... + beta^(t-1). No digits cancel
        # in s, as they do in 1 - beta^t.
        s1 = 1 + self.beta1 * state["s1"]
        s2 = 1 + self.beta2 * state["s2"]
        m = torch.lerp(state["m"], g, 1 / s1)
        v = torch.lerp(state["v"], g * g, 1 / s2)
        w = w - self.lr * (m / v.sqrt().add_(self.eps))
        return w, {"m": m, "v": v, "s1": s1, "s2": s2}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s1 = 1 + self.beta1 * state["s1"].item()
        s2 = 1 + self.beta2 * state["s2"].item()
        w = w.clone()
        m = state["m"].clone()
        v = state["v"].clone()
        step_adam(w, g, m, v, lr=self.lr, beta1=1 - 1 / s1, beta2=1 - 1 / s2, eps=self.eps)
        s1_column = w.new_full((1, 1), s1)
        s2_column = w.new_full((1, 1), s2)
        return w, {"m": m, "v": v, "s1": s1_column, "s2": s2_column}
