"""One model per cluster of clients. Briggs, Fan, Andras: Federated Learning with Hierarchical Clustering of Local
Updates to Improve Training on Non-IID Data, 2020, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from tacit.core.errors import StudyError
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort


@dataclass(frozen=True)
class Clustered(Algorithm, name="clustered"):
    """Clients whose updates point the same way share a model: hierarchical clustering (Briggs, Fan, Andras, 2020).

    FedAvg for `after` rounds, then the clients are grouped into `clusters` by the cosine similarity of their updates
    (average linkage), and FedAvg goes on within each. A client that was absent then joins the most similar group with
    its first reply. The global model is the mean over clients of their cluster's.
    """

    clusters: int = 2
    after: int = 1
    neutral: ClassVar[Mapping[str, float] | None] = {"clusters": 1}
    needs_rows: ClassVar[bool] = True
    combines: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.clusters < 1 or self.after < 0:
            raise StudyError(
                f"clustered: expected clusters from 1 and after from 0, got {self.clusters} and {self.after}"
            )

    def check_clients(self, clients: int) -> None:
        if self.clusters > clients:
            raise StudyError(
                f"clustered: {clients} clients cannot form {self.clusters} clusters; use at most {clients}"
            )

    def server_init(self, x: Tensor, population: int) -> Server:
        models = x.repeat(self.clusters, 1)  # (C, P)
        nobody = torch.full((population,), -1, device=x.device)
        return {
            "x": x,
            "models": models,
            "ways": torch.zeros_like(models),
            "member": nobody,
            "round": 0,
        }

    def send(self, server: Server, client: int) -> Server:
        place = int(server["member"][client])
        return {"x": server["models"][place] if place >= 0 else server["x"]}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        dx, next_round = cohort.rows("dx"), server["round"] + 1
        sound = dx.isfinite().all(1)  # a client that sends NaN is not heard
        dx, weights = dx[sound], cohort.weights[sound].to(dx)
        if not len(dx):
            return {**server, "round": next_round}
        if server["round"] < self.after:
            x = server["x"] + (weights / weights.sum() * dx).sum(0)
            return {**server, "x": x, "models": x.expand_as(server["models"]), "round": next_round}
        who = torch.tensor(cohort.ids, device=dx.device)[sound]
        first = not server["ways"].any()
        found = (
            group(dx, self.clusters) if first else (normalize(dx) @ server["ways"].T).argmax(1)
        )  # (K,)
        ways = directions(dx, found, self.clusters) if first else server["ways"]
        known = server["member"][who]
        place = torch.where(known >= 0, known, found)
        member = server["member"].index_copy(0, who, place)
        parts = one_hot(place, self.clusters).to(dx) * weights  # (K, C)
        models = server["models"] + (parts / parts.sum(0).clamp(min=1e-30)).T @ dx
        sizes = one_hot(member[member >= 0], self.clusters).to(dx).mean(0)  # (C,)
        return {
            "x": sizes @ models,
            "models": models,
            "ways": ways,
            "member": member,
            "round": next_round,
        }


def group(dx: Tensor, clusters: int) -> Tensor:
    """Which cluster each row belongs to. # (K, P) -> (K,)"""
    from sklearn.cluster import AgglomerativeClustering

    if clusters == 1 or len(dx) <= clusters:
        return torch.arange(len(dx), device=dx.device) % clusters
    distances = (1 - normalize(dx) @ normalize(dx).T).clamp(min=0).cpu().numpy()
    found = (
        AgglomerativeClustering(clusters, metric="precomputed", linkage="average")
        .fit(distances)
        .labels_
    )
    return torch.from_numpy(found).long().to(dx.device)


def directions(dx: Tensor, place: Tensor, clusters: int) -> Tensor:
    """The unit mean update of each cluster. # (C, P)"""
    return normalize(one_hot(place, clusters).to(dx).T @ normalize(dx))
