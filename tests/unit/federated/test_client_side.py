"""Which classes of algorithms share the client's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.algorithms.fedprox import FedProx
from tacit.federated.client_side import client_class, client_side
from tacit.federated.cohort import Cohort
from tacit.training.trainer import Work


@dataclass(frozen=True)
class AnotherServer(FedProx):
    patience: int = 3
    sends_updates: ClassVar[bool] = True

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        return server

    def check_clients(self, clients: int) -> None:
        return None


@dataclass(frozen=True)
class AnotherClient(FedProx):
    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        return {"dx": sent["x"] - w}, mine


@dataclass(frozen=True)
class MarkedAgain(FedProx):
    @client_side
    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        return mine["w"]


@dataclass(frozen=True)
class WithHelper(FedProx):
    def helper(self) -> float:
        return 1.0


@dataclass(frozen=True)
class WithFullGradient(Algorithm):
    @property
    def needs_full_gradient(self) -> bool:
        return True


def test_a_class_that_differs_on_the_server_only_shares_the_client_class() -> None:
    assert client_class(AnotherServer) is FedProx


def test_a_class_that_overrides_a_client_hook_has_a_client_class_of_its_own() -> None:
    assert client_class(AnotherClient) is AnotherClient
    assert client_class(MarkedAgain) is MarkedAgain
    assert client_class(WithFullGradient) is WithFullGradient


def test_a_helper_may_be_used_by_a_client_hook() -> None:
    assert client_class(WithHelper) is WithHelper


def test_registered_algorithms_override_client_hooks_where_the_client_class_is_theirs() -> None:
    shared = {name for name, cls in Algorithm.known().items() if client_class(cls) is not cls}
    assert {"fedavg", "fedsgd", "fedavgm", "clustered"} <= shared
    assert {"fedadam", "fedyogi", "fedadagrad"} <= shared
    assert {"fedprox", "fednova", "scaffold", "fedplus", "local", "fednag"}.isdisjoint(shared)
