"""FedProx. Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, 2020,
algorithm 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm
from tacit.training.trainer import Work


@dataclass(frozen=True)
class FedProx(Algorithm, name="fedprox"):
    """FedAvg with a pull towards the global model, against drift on non-IID data (Li et al., 2020).

    Client k minimises F_k(w) + mu/2 |w - x|^2, so its gradient is G_k(w) + mu (w - x); mu = 0 is FedAvg.
    """

    mu: float = 0.01
    neutral: ClassVar[Mapping[str, float] | None] = {"mu": 0.0}

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise StudyError(f"fedprox.mu: expected 0 or more, got {self.mu}")

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        return g + self.mu * (w - sent["x"])
