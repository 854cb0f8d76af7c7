"""FedNAG.

Yang, Bao, Ma, Chen: Federated Learning with Nesterov Accelerated Gradient, 2022, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort
from tacit.training.optimisers import Nesterov, Optimiser
from tacit.training.trainer import Work


@dataclass(frozen=True)
class FedNag(Algorithm, name="fednag"):
    """Clients step with Nesterov's momentum; weights and momenta are both averaged and sent back
    (Yang et al., 2022).

    Client k, tau_k times:  v <- gamma v - lr G_k(w);  w <- w + gamma v - lr G_k(w)
    Server:                 x <- sum_k p_k w_k,  v <- sum_k p_k v_k

    gamma is the `momentum` of the local optimiser, nesterov. What travels is torch's buffer,
    -v / lr.
    """

    neutral: ClassVar[Mapping[str, float] | None] = None  # FedAvg at gamma = 0, the optimiser's
    sends: ClassVar[tuple[str, ...]] = ("x", "v")

    def server_init(self, x: Tensor, population: int) -> Server:
        return {"x": x, "v": torch.zeros_like(x)}

    def begin(self, sent: Rows, mine: Rows) -> tuple[Tensor, Rows, Rows | None]:
        return sent["x"], mine, {"v": sent["v"]}

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        dx = w - sent["x"]
        dv = work.state["v"] - sent["v"]
        return {"dx": dx, "dv": dv}, mine

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        x = server["x"] + cohort.combine("dx")
        v = server["v"] + cohort.combine("dv")
        return {"x": x, "v": v}

    def check(self, optimiser: Optimiser) -> None:
        if not isinstance(optimiser, Nesterov):
            raise StudyError(
                f"fednag averages Nesterov momenta, and {optimiser.name} has none;"
                " use optimiser: {name: nesterov, momentum: 0.9}"
            )
