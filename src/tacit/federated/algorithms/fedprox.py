"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, 2020,
algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort
from tacit.federated.local_work import OneStep
from tacit.training.trainer import Work


@dataclass(frozen=True)
class FedProx(Algorithm, name="fedprox"):
    """FedAvg with a pull towards the global model, against drift on non-IID data (Li et al., 2020).

    Client k minimises F_k(w) + mu/2 |w - x|^2, so its gradient is G_k(w) + mu (w - x).
    mu = 0 is FedAvg.
    """

    mu: float = 0.01
    neutral: ClassVar[Mapping[str, float] | None] = {"mu": 0.0}
    fedavg_in_one_step: ClassVar[OneStep] = "always"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise StudyError(f"{self.name}.mu: expected 0 or more, got {self.mu}")

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g + self.mu * (w - sent["x"])


@dataclass(frozen=True)
class AdaptiveFedProx(FedProx, name="fedprox_adaptive"):
    """FedProx with an adaptive mu: lower after `after` falls of the loss in a row, higher after a
    rise (Li et al., 2020).

    mu changes by `step`, and stays at zero or above. The loss is the clients' mean over the round's
    local work. Section 5.3.2.
    """

    mu: float = 1.0
    step: float = 0.1
    after: int = 5
    neutral: ClassVar[Mapping[str, float] | None] = {"mu": 0.0, "step": 0.0}
    sends: ClassVar[tuple[str, ...]] = ("x", "mu")

    def __post_init__(self) -> None:
        if not self.mu >= 0 or not self.step >= 0 or self.after < 1:
            raise StudyError(
                "fedprox_adaptive: expected mu and step of 0 or more and after of 1 or more,"
                f" got {self.mu}, {self.step}, {self.after}"
            )

    def server_init(self, x: Tensor, population: int) -> Server:
        return {"x": x, "mu": self.mu, "loss": math.inf, "falls": 0}

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g + sent["mu"] * (w - sent["x"])

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        loss = cohort.mean_loss
        falls = server["falls"] + 1 if loss < server["loss"] else 0
        change = 0.0
        if loss > server["loss"]:
            change = self.step
        elif falls == self.after:
            change = -self.step
        mu = max(0.0, server["mu"] + change)
        x = server["x"] + cohort.combine("dx")
        return {"x": x, "mu": mu, "loss": loss, "falls": falls % self.after}
