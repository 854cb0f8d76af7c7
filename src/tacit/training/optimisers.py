"""Local optimisers on rows: `init` makes the state, `update` returns the next parameters and state.

Each is the rule of its `torch.optim` namesake. Inside `update` the float fields are (K, 1) columns, one value per row
(see `core/rows.py`), so one call steps the clients of many runs. On a CPU, where rows come one by one, most rules have
a second form with plain numbers and fewer passes over the row: `lean_update` finds it.

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

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.fields import field_types
from tacit.core.registry import Registered
from tacit.core.rows import Rows, columns, join, pick, replaced  # noqa: F401  (columns is for the example above)
from tacit.core.torch_private import step_adam

Update = Callable[[Tensor, Tensor, Rows], tuple[Tensor, Rows]]


@dataclass(frozen=True)
class Optimiser(Registered, family="optimisers", home="tacit.training.optimisers"):
    """Base of the local optimisers. `weight_decay` adds that multiple of the parameters to the gradient."""

    lr: float = 0.01
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise StudyError(f"{self.name}.lr: expected a number above 0, got {self.lr}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise StudyError(
                f"{self.name}.weight_decay: expected 0 or more, got {self.weight_decay}"
            )
        if not (eps := getattr(self, "eps", 0)) >= 0:
            raise StudyError(f"{self.name}.eps: expected 0 or more, got {eps}")
        for share in ("momentum", "rho", "beta1", "beta2"):
            if not 0 <= getattr(self, share, 0) < 1:
                raise StudyError(
                    f"{self.name}.{share}: expected 0 or more and below 1, got {getattr(self, share)}"
                )

    def init(self, w: Tensor) -> Rows:
        """The state before the first step."""
        return {}

    def update(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """One step: the next parameters and state."""
        return self.step(w, g if self.weight_decay is None else g + self.weight_decay * w, state)

    @abstractmethod
    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """The rule itself; `update` has added the weight decay."""

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """`step` on one row where the float fields are plain numbers; equal to it up to rounding, and as pure."""
        return self.step(w, g, state)


def lean_update(rule: Optimiser, w: Tensor) -> Update:
    """`rule.update`, or on a CPU its lean form, if it has one. Row by row: a row's bits do not depend on the others."""
    if w.device.type != "cpu" or not _is_lean(type(rule)):
        return rule.update
    updates = [_plain_update(rule, k) for k in range(len(w))]
    return updates[0] if len(updates) == 1 else lambda w, g, state: _apart(updates, w, g, state)


def _is_lean(kind: type[Optimiser]) -> bool:
    """Whether its lean form is that of its own step: a class that overrides the step alone has none."""
    home = {
        name: next(cls for cls in kind.__mro__ if name in vars(cls))
        for name in ("lean", "step", "update")
    }
    return home["lean"] is home["step"] and home["update"] is Optimiser


def _plain_update(rule: Optimiser, k: int) -> Update:
    """Row k's, with its numbers read once."""
    names = [name for name, kind in field_types(type(rule)).items() if kind is float]
    plain = replaced(rule, **{name: getattr(rule, name)[k].item() for name in names})
    decay = plain.weight_decay
    if decay is None:
        return plain.lean
    return lambda w, g, state: plain.lean(w, torch.add(g, w, alpha=decay), state)


def _apart(updates: list[Update], w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
    rows = [slice(k, k + 1) for k in range(len(updates))]
    found = [update(w[k], g[k], pick(state, k)) for update, k in zip(updates, rows, strict=True)]
    return torch.cat([row for row, _ in found]), join([own for _, own in found])


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
        return w - self.lr * v, {"v": v}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = torch.add(g, state["v"], alpha=self.momentum)
        return torch.add(w, v, alpha=-self.lr), {"v": v}


@dataclass(frozen=True)
class Nesterov(Optimiser, name="nesterov"):
    """Nesterov's accelerated gradient, at the shifted point: v <- momentum v + g; w <- w - lr (g + momentum v)."""

    momentum: float = 0.9

    def init(self, w: Tensor) -> Rows:
        return {"v": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = g + self.momentum * state["v"]
        return w - self.lr * (g + self.momentum * v), {"v": v}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        v = torch.add(g, state["v"], alpha=self.momentum)
        return torch.add(w, torch.add(g, v, alpha=self.momentum), alpha=-self.lr), {"v": v}


@dataclass(frozen=True)
class Adagrad(Optimiser, name="adagrad"):
    """Duchi, Hazan, Singer, 2011: s <- s + g^2; w <- w - lr g / (sqrt(s) + eps)."""

    eps: float = 1e-10

    def init(self, w: Tensor) -> Rows:
        return {"s": torch.zeros_like(w)}

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.addcmul(state["s"], g, g)
        return w - self.lr * g / (s.sqrt() + self.eps), {"s": s}

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s = torch.addcmul(state["s"], g, g)
        return torch.addcdiv(w, g, s.sqrt().add_(self.eps), value=-self.lr), {"s": s}


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

    def lean(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        s1, s2 = 1 + self.beta1 * state["s1"].item(), 1 + self.beta2 * state["s2"].item()
        w, m, v = w.clone(), state["m"].clone(), state["v"].clone()
        step_adam(w, g, m, v, lr=self.lr, beta1=1 - 1 / s1, beta2=1 - 1 / s2, eps=self.eps)
        return w, {"m": m, "v": v, "s1": w.new_full((1, 1), s1), "s2": w.new_full((1, 1), s2)}
