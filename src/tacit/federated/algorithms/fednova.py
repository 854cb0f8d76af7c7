"""FedNova.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, 2020, equations 9 to 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.data.splits.split import Split
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort
from tacit.federated.local_work import OneStep
from tacit.training.optimisers import SGD, Momentum, Nesterov, Optimiser
from tacit.training.trainer import Work


@dataclass(frozen=True)
class FedNova(Algorithm, name="fednova"):
    """Averages updates per unit of local work, so that clients do not count more for more steps
    (Wang et al., 2020).

    Client k:  dx_k = w_k - x, and a_k = |a_k|_1, the sum of the weights of its gradients in
               dx_k / -lr:
      SGD       tau_k steps: a = tau
      momentum  a = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho)
      nesterov  a = tau + rho times that
      proximal  a = (1 - (1 - lr mu)^tau) / (lr mu)
    Server:    x <- x + tau_eff sum_k p_k dx_k / a_k,  tau_eff = sum_k p_k a_k.
               No further learning rate.

    `normalise: steps` or `epochs` divides by tau, or by the epochs asked for, whatever the
    optimiser does. `tau_eff: steps` is sum_k p_k tau_k, as in the authors' code if mu > 0;
    it then differs from FedAvg even if all tau are equal.
    """

    mu: float = 0.0
    normalise: Literal["exact", "steps", "epochs"] = "exact"
    tau_eff: Literal["exact", "steps"] = "exact"
    neutral: ClassVar[Mapping[str, float] | None] = {"mu": 0.0}  # where all clients have one tau
    fedavg_in_one_step: ClassVar[OneStep] = "always"
    whole_updates: ClassVar[bool] = False
    starts_at_x: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise StudyError(f"fednova.mu: expected 0 or more, got {self.mu}")

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g + self.mu * (w - sent["x"])

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        if self.normalise == "exact":
            a = accumulated(work, self.mu)
        else:
            a = getattr(work, self.normalise)
        dx = (w - sent["x"]) / a
        tau = work.steps if self.tau_eff == "steps" else a
        return {"dx": dx, "a": tau}, mine

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        tau_eff = cohort.combine("a")
        return {**server, "x": server["x"] + tau_eff * cohort.combine("dx")}

    def check(self, optimiser: Optimiser) -> None:
        if self.normalise != "exact":
            return
        if not isinstance(optimiser, SGD | Momentum | Nesterov):
            raise StudyError(
                "fednova divides an update by the weights of its gradients, and under"
                f" {optimiser.name} these weights depend on the gradients; use sgd, momentum or"
                " nesterov, or ask for normalise: steps or epochs"
            )
        if self.mu and not isinstance(optimiser, SGD):
            raise StudyError(
                f"fednova knows the weights of {optimiser.name}'s gradients only without a proximal"
                " term; use optimiser: sgd, mu: 0, or normalise: steps"
            )

    def caution(self, split: Split) -> str | None:
        if not split.uneven_sizes:
            return None
        return (
            f"fednova under {split.name} amplifies small clients: one with tau steps counts"
            " tau_eff / tau times as much as in FedAvg, so training may diverge; to avoid it, give"
            " all clients the same number of batches, such as one full batch"
        )


def accumulated(work: Work, mu: Tensor | float) -> Tensor:
    """a: how much of a constant gradient is in the update, per unit of learning rate. # (K, 1)"""
    tau = work.steps
    optimiser = work.optimiser
    if isinstance(optimiser, Momentum | Nesterov):
        rho = torch.as_tensor(optimiser.momentum)
        heavy = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        return heavy if isinstance(optimiser, Momentum) else tau + rho * heavy
    pull = torch.minimum(work.lr * mu, 2 - work.lr * mu)  # 1 - pull is |1 - lr mu|
    # (1 - (1 - pull)^tau) / pull, also where pull is small
    decay = -torch.expm1(tau * torch.log1p(-pull)) / pull
    return torch.where(pull > 0, decay, tau)
