"""SCAFFOLD.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, 2020, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort
from tacit.federated.local_work import OneStep
from tacit.training.optimisers import SGD, Optimiser
from tacit.training.trainer import Work


@dataclass(frozen=True)
class Scaffold(Algorithm, name="scaffold"):
    """Control variates correct each client's drift: c_k estimates its own gradient, c everybody's
    (Karimireddy, 2020).

    Client k, tau_k times:  w <- w - lr (G_k(w) - c_k + c)
      option I:   c_k+ = the gradient of F_k at x, over all its data
      option II:  c_k+ = c_k - c + (x - w) / (tau_k lr)
    Server:  x <- x + server_lr mean_S (w_k - x)
             c <- c + |S| / N mean_S (c_k+ - c_k),  so that c = mean of all c_k

    All control variates start at zero. `weights: samples` weights both means by samples: the
    optimum is then that of the pooled data, instead of the mean over clients.
    """

    option: Literal["I", "II"] = "II"
    server_lr: float = 1.0
    weights: Literal["samples", "uniform"] = field(default="uniform", kw_only=True)

    neutral: ClassVar[Mapping[str, float] | None] = None
    fedavg_in_one_step: ClassVar[OneStep] = "averaged"  # the c_k and c cancel in the mean
    sends: ClassVar[tuple[str, ...]] = ("x", "c")
    starts_at_x: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.server_lr > 0:
            raise StudyError(f"scaffold.server_lr: expected a number above 0, got {self.server_lr}")

    @property
    def needs_full_gradient(self) -> bool:
        return self.option == "I"

    def server_init(self, x: Tensor, population: int) -> Server:
        return {"x": x, "c": torch.zeros_like(x)}

    def client_init(self, x: Tensor) -> Rows:
        return {"c": torch.zeros_like(x)}

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g - mine["c"] + sent["c"]

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        if self.option == "I":
            assert work.full_gradient is not None
            c = work.full_gradient
        else:
            c = mine["c"] - sent["c"] + (sent["x"] - w) / (work.steps * work.lr)
        dx = w - sent["x"]
        dc = c - mine["c"]
        return {"dx": dx, "dc": dc}, {"c": c}

    def settle(self, old: Rows, mine: Rows, arrived: Rows) -> Rows:
        # As the server counts it, or c would no longer be the mean of the c_k.
        return {"c": old["c"] + arrived["dc"]}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        x = server["x"] + self.server_lr * cohort.combine("dx")
        c = server["c"] + cohort.share * cohort.combine("dc")
        return {"x": x, "c": c}

    def check(self, optimiser: Optimiser) -> None:
        if self.option == "II" and not isinstance(optimiser, SGD):
            raise StudyError(
                "scaffold's option II computes the mean gradient from the update, which"
                f" {optimiser.name} rescales; use optimiser: sgd, or option: I"
            )
