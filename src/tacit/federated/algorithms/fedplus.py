"""Fed+.

Yu, Kundu, Wynter, Lim: Fed+: A Unified Approach to Robust Personalized Federated Learning, 2020,
algorithm 1.
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
from tacit.federated.combine.location import huber_location, spatial_huber_location
from tacit.training.optimisers import SGD, Optimiser
from tacit.training.trainer import Work


@dataclass(frozen=True)
class FedPlus(Algorithm, name="fedplus"):
    """Every client keeps its own model, pulled towards a central one that outliers cannot move far
    (Yu et al., 2020).

    All minimise the mean of f_k(w_k) + alpha/2 |w_k - z_k|^2 + mu phi(z_k - x) over w, z and x;
    rho = mu / alpha.
    Client k:  z = x + prox(w_k - x);  w <- (1 - lam) w_k + lam x
               tau_k times:  w <- theta (w - lr G_k(w)) + (1 - theta) z,
               theta = 1 / (1 + alpha lr) unless given
    Server:    x <- argmin_x mean_k Phi_rho(w_k - x) over all clients' last models,
               Phi_rho the envelope of phi

    kind              phi          prox_rho(d)                 x
    mean              |d|^2 / 2    d / (1 + rho)               the mean
    median            |d|_1        sign(d) max(|d| - rho, 0)   Huber's location of each coordinate
    geometric_median  |d|_2        d max(1 - rho / |d|, 0)     Huber's location in space
    """

    kind: Literal["mean", "median", "geometric_median"] = "mean"
    mu: float = 1.0
    alpha: float = 1.0
    lam: float = 0.0
    theta: float | None = None
    weights: Literal["samples", "uniform"] = field(default="uniform", kw_only=True)

    neutral: ClassVar[Mapping[str, float] | None] = None
    needs_rows: ClassVar[bool] = True
    combines: ClassVar[bool] = False
    keeps_all_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.mu >= 0 or not self.alpha > 0:
            raise StudyError(
                "fedplus: expected mu of 0 or more and alpha above 0,"
                f" got {self.mu} and {self.alpha}"
            )
        theta_fits = self.theta is None or 0 < self.theta <= 1
        if not 0 <= self.lam <= 1 or not theta_fits:
            raise StudyError(
                "fedplus: expected lam from 0 to 1 and theta up to 1,"
                f" got {self.lam} and {self.theta}"
            )
        if self.weights != "uniform":
            raise StudyError("fedplus gives all clients the same weight; use weights: uniform")

    def server_init(self, x: Tensor, population: int) -> Server:
        return {"x": x, "models": x.repeat(population, 1)}  # (N, P)

    def client_init(self, x: Tensor) -> Rows:
        return {"w": x, "known": x}  # its model, and what the server knows of it

    def begin(self, sent: Rows, mine: Rows) -> tuple[Tensor, Rows, Rows | None]:
        x = sent["x"]
        w = mine["w"]
        z = x + shrink(w - x, self.mu / self.alpha, self.kind)
        return torch.lerp(w, x, self.lam), {**mine, "z": z}, None

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        # w - lr (theta g + (1 - theta) / lr (w - z)) is the step above
        theta = 1 / (1 + self.alpha * work.lr) if self.theta is None else self.theta
        return theta * g + (1 - theta) / work.lr * (w - mine["z"])

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        return {"dx": w - mine["known"]}, {"w": w, "known": w}

    def settle(self, old: Rows, mine: Rows, arrived: Rows) -> Rows:
        return {**mine, "known": old["known"] + arrived["dx"]}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        ids = torch.tensor(cohort.ids, device=server["x"].device)
        dx = cohort.rows("dx")
        sound = dx.isfinite().all(1, keepdim=True)  # a client that sends NaN stays where it was
        dx = torch.where(sound, dx, 0.0)
        models = server["models"].index_add(0, ids, dx)
        x = centre(models, self.mu / self.alpha, self.kind)
        return {"x": x, "models": models}

    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        return mine["w"]

    def check(self, optimiser: Optimiser) -> None:
        if not isinstance(optimiser, SGD):
            raise StudyError(
                f"fedplus mixes a gradient step with z, and {optimiser.name} would rescale both;"
                " use optimiser: sgd"
            )


def shrink(d: Tensor, rho: Tensor | float, kind: str) -> Tensor:
    """The proximal operator of rho phi, row by row. # (K, P), (K, 1) -> (K, P)"""
    if kind == "mean":
        return d / (1 + rho)
    if kind == "median":
        return d.sign() * (d.abs() - rho).clamp(min=0)
    size: Tensor = torch.linalg.vector_norm(d, dim=1, keepdim=True)
    size = size.clamp(min=torch.finfo(d.dtype).tiny)  # zero stays zero
    return d * (1 - rho / size).clamp(min=0)


def centre(models: Tensor, rho: float, kind: str) -> Tensor:
    """The x that minimises the mean of Phi_rho(w_k - x). # (N, P) -> (P,)"""
    if kind == "mean":
        return models.mean(0)
    if kind == "median":
        return huber_location(models, rho)
    return spatial_huber_location(models, rho)
