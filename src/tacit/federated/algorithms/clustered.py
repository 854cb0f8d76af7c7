"""One model per cluster of clients.

Briggs, Fan, Andras: Federated Learning with Hierarchical Clustering of Local Updates to Improve
Training on Non-IID Data, 2020, algorithm 1.
"""

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
    """Clients whose updates point the same way share a model: hierarchical clustering
    (Briggs, Fan, Andras, 2020).

    FedAvg for `after` rounds, then the clients are grouped into `clusters` by the cosine similarity
    of their updates (average linkage), and FedAvg continues within each. A client that was absent
    then joins the most similar group with its first reply. The global model is the mean of the
    models that clients get from their clusters.
    """

    clusters: int = 2
    after: int = 1
    neutral: ClassVar[Mapping[str, float] | None] = {"clusters": 1}
    needs_rows: ClassVar[bool] = True
    combines: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.clusters < 1 or self.after < 0:
            raise StudyError(
                "clustered: expected clusters of 1 or more and after of 0 or more,"
                f" got {self.clusters} and {self.after}"
            )

    def check_clients(self, clients: int) -> None:
        if self.clusters > clients:
            raise StudyError(
                f"clustered: {clients} clients cannot form {self.clusters} clusters;"
                f" use at most {clients}"
            )

    def server_init(self, x: Tensor, population: int) -> Server:
        models = x.repeat(self.clusters, 1)  # (C, P)
        return {
            "x": x,
            "models": models,
            "ways": torch.zeros_like(models),  # (C, P), the direction of each cluster's updates
            "member": torch.full((population,), -1, device=x.device),  # -1: in no cluster yet
            "round": 0,
        }

    def send(self, server: Server, client: int) -> Server:
        cluster = int(server["member"][client])
        if cluster < 0:
            return {"x": server["x"]}
        return {"x": server["models"][cluster]}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        dx = cohort.rows("dx")
        sound = dx.isfinite().all(1)  # a client that sends NaN is not heard
        dx = dx[sound]
        weights = cohort.weights[sound].to(dx)
        round = server["round"]
        server = {**server, "round": round + 1}
        if not len(dx):
            return server
        if round < self.after:
            p = weights / weights.sum()
            x = server["x"] + (p * dx).sum(0)
            return {**server, "x": x, "models": x.expand_as(server["models"])}
        ids = torch.tensor(cohort.ids, device=dx.device)[sound]
        cluster, ways = divide(server, ids, dx, self.clusters)
        member = server["member"].index_copy(0, ids, cluster)
        models = server["models"] + cluster_means(dx, weights, cluster, self.clusters)
        members = one_hot(member[member >= 0], self.clusters).to(dx)
        x = members.mean(0) @ models
        return {**server, "x": x, "models": models, "ways": ways, "member": member}


def divide(server: Server, ids: Tensor, dx: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    """The cluster of each row, (K,), and the clusters' directions, (C, P)."""
    ways = server["ways"]
    if ways.any():
        nearest = (normalize(dx) @ ways.T).argmax(1)
    else:  # for the first time
        nearest = group(dx, clusters)
        ways = directions(dx, nearest, clusters)
    before = server["member"][ids]
    return torch.where(before >= 0, before, nearest), ways


def group(dx: Tensor, clusters: int) -> Tensor:
    """Which cluster each row belongs to. # (K, P) -> (K,)"""
    from sklearn.cluster import AgglomerativeClustering

    if clusters == 1 or len(dx) <= clusters:
        return torch.arange(len(dx), device=dx.device) % clusters
    similarities = normalize(dx) @ normalize(dx).T
    distances = (1 - similarities).clamp(min=0)
    method = AgglomerativeClustering(clusters, metric="precomputed", linkage="average")
    labels = method.fit(distances.cpu().numpy()).labels_
    return torch.from_numpy(labels).long().to(dx.device)


def directions(dx: Tensor, cluster: Tensor, clusters: int) -> Tensor:
    """The unit mean update of each cluster. # (K, P), (K,) -> (C, P)"""
    members = one_hot(cluster, clusters).to(dx)  # (K, C)
    return normalize(members.T @ normalize(dx))


def cluster_means(dx: Tensor, weights: Tensor, cluster: Tensor, clusters: int) -> Tensor:
    """The weighted mean update of each cluster, or zero. # (K, P), (K, 1), (K,) -> (C, P)"""
    counted = one_hot(cluster, clusters).to(dx) * weights  # (K, C)
    shares = counted / counted.sum(0).clamp(min=1e-30)
    return shares.T @ dx
