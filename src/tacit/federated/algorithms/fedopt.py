"""FedAdagrad, FedAdam, FedYogi and FedAvgM.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization,
2021, algorithm 2. FedAvgM: Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification, 2019, section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort


@dataclass(frozen=True)
class FedOpt(Algorithm):
    """The server takes d, the clients' mean update, as a gradient for an adaptive optimiser.

    m <- beta1 m + (1 - beta1) d;  v as each rule says;  x <- x + server_lr m / (sqrt(v) + tau)

    m starts at 0 and v at `v_init`, tau^2 unless given. `bias_correction: lr_scaled` multiplies
    server_lr by sqrt(1 - beta2^t) / (1 - beta1^t); `hat` divides m by 1 - beta1^t and v by
    1 - beta2^t, as torch's Adam does.
    """

    server_lr: float = 0.01
    beta1: float = 0.9
    tau: float = 1e-3
    v_init: float | None = None
    bias_correction: Literal["none", "lr_scaled", "hat"] = "none"
    weights: Literal["samples", "uniform"] = field(default="uniform", kw_only=True)

    neutral: ClassVar[Mapping[str, float] | None] = None

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            value = getattr(self, name, 0)
            if not 0 <= value < 1:
                raise StudyError(f"{self.name}.{name}: expected 0 or more and below 1, got {value}")
        for name in ("server_lr", "tau"):
            value = getattr(self, name)
            if not value > 0:
                raise StudyError(f"{self.name}.{name}: expected a number above 0, got {value}")
        if self.v_init is not None and not self.v_init >= 0:
            raise StudyError(f"{self.name}.v_init: expected 0 or more, got {self.v_init}")

    def server_init(self, x: Tensor, population: int) -> Server:
        m = torch.zeros_like(x)
        v_init = self.tau**2 if self.v_init is None else self.v_init
        return {"x": x, "m": m, "v": torch.full_like(x, v_init), "t": 0}


@dataclass(frozen=True)
class FedAdagrad(FedOpt, name="fedadagrad"):
    """FedAvg with Adagrad at the server: v <- v + d^2 (Reddi et al., 2021)."""

    server_lr: float = 0.1
    beta1: float = 0.0

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        d = cohort.combine("dx")
        v = server["v"] + d * d
        return take_step(self, server, d, v)


@dataclass(frozen=True)
class FedAdam(FedOpt, name="fedadam"):
    """FedAvg with Adam at the server: v <- beta2 v + (1 - beta2) d^2 (Reddi et al., 2021)."""

    beta2: float = 0.99

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        d = cohort.combine("dx")
        v = self.beta2 * server["v"] + (1 - self.beta2) * d * d
        return take_step(self, server, d, v, self.beta2)


@dataclass(frozen=True)
class FedYogi(FedOpt, name="fedyogi"):
    """FedAvg with Yogi at the server: v <- v - (1 - beta2) d^2 sign(v - d^2)
    (Reddi et al., 2021)."""

    beta2: float = 0.99

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        d = cohort.combine("dx")
        sign = torch.sign(server["v"] - d * d)
        v = server["v"] - (1 - self.beta2) * d * d * sign
        return take_step(self, server, d, v, self.beta2)


@dataclass(frozen=True)
class FedAvgM(Algorithm, name="fedavgm"):
    """FedAvg with momentum at the server: v <- momentum v + d;  x <- x + server_lr v
    (Hsu et al., 2019)."""

    server_lr: float = 1.0
    momentum: float = 0.9
    neutral: ClassVar[Mapping[str, float] | None] = {"server_lr": 1.0, "momentum": 0.0}

    def __post_init__(self) -> None:
        if not self.server_lr > 0 or not 0 <= self.momentum < 1:
            raise StudyError(
                "fedavgm: expected server_lr above 0 and momentum from 0 to below 1,"
                f" got {self.server_lr} and {self.momentum}"
            )

    def server_init(self, x: Tensor, population: int) -> Server:
        return {"x": x, "v": torch.zeros_like(x)}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        v = self.momentum * server["v"] + cohort.combine("dx")
        return {"x": server["x"] + self.server_lr * v, "v": v}


def take_step(rule: FedOpt, server: Server, d: Tensor, v: Tensor, beta2: float = 0.0) -> Server:
    """The step that the three adaptive rules share, from d and the new v."""
    t = server["t"] + 1
    m = rule.beta1 * server["m"] + (1 - rule.beta1) * d
    m_bias = 1 - rule.beta1**t
    v_bias = 1 - beta2**t
    if rule.bias_correction == "hat":
        step = rule.server_lr * (m / m_bias) / ((v / v_bias).sqrt() + rule.tau)
    elif rule.bias_correction == "lr_scaled":
        lr = rule.server_lr * (math.sqrt(v_bias) / m_bias)
        step = lr * m / (v.sqrt() + rule.tau)
    else:
        step = rule.server_lr * m / (v.sqrt() + rule.tau)
    return {"x": server["x"] + step, "m": m, "v": v, "t": t}
