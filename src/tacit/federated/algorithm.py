"""A federated algorithm: read this file first.

All clients of all runs are rows of one matrix: a model is a row of P numbers, and K clients are a
(K, P) tensor. An algorithm is a frozen dataclass of a few pure hooks on rows, and its fields are
its hyper-parameters. The defaults are FedAvg, so FedProx overrides one hook. This is a round:

    w, mine, start = begin(sent, mine)           each client: what the server sent, its own memory
    repeat: g = correct(gradient(w), w, ...)     each client, at every local step
            w = optimiser(w, g)
    message, mine = finish(w, sent, mine, work)  each client
    server = aggregate(server, cohort)           the server: the only hook that sees all clients

Client hooks act row by row: K simulated clients and one deployed client are the same code. Rows may
belong to runs with different settings, so float fields are (K, 1) columns: never branch on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from tacit.core.registry import Registered
from tacit.core.rows import Rows
from tacit.data.splits.split import Split
from tacit.federated.client_side import client_side
from tacit.federated.cohort import Cohort
from tacit.federated.local_work import LocalWork, OneStep
from tacit.training.optimisers import Optimiser
from tacit.training.trainer import Work

Server = Mapping[str, Any]  # (P,) tensors and scalars by name; "x" is the global model


@dataclass(frozen=True)
class Algorithm(Registered, family="algorithms", home="tacit.federated.algorithms"):
    """Base of the algorithms. `weights`: clients count by their samples, or all count the same."""

    weights: Literal["samples", "uniform"] = field(default="samples", kw_only=True)

    neutral: ClassVar[Mapping[str, float] | None] = {}  # the settings that make it FedAvg, if any
    sends: ClassVar[tuple[str, ...]] = ("x",)  # the server entries that are broadcast
    local_work: ClassVar[LocalWork | None] = None  # set where the method leaves no choice
    needs_rows: ClassVar[bool] = False  # aggregate reads single messages, so a sum is not enough
    totals: ClassVar[tuple[str, ...]] = ()  # the message entries whose plain sum aggregate reads
    combines: ClassVar[bool] = True  # aggregate goes through the study's combiner
    whole_updates: ClassVar[bool] = True  # x + dx is a client's model
    sends_updates: ClassVar[bool] = True  # clients send messages at all
    starts_at_x: ClassVar[bool] = False  # it reads gradients off w - x, so clients must start at x
    fedavg_in_one_step: ClassVar[OneStep] = "never"  # what it is if clients take one local step
    keeps_all_models: ClassVar[bool] = False  # the server has a model of every client

    @property
    @client_side
    def needs_full_gradient(self) -> bool:
        """Whether it reads `work.full_gradient`: over all of a client's data, at sent["x"]."""
        return False

    def server_init(self, x: Tensor, population: int) -> Server:
        """The server's state before the first round, from the initial parameters."""
        return {"x": x}

    def send(self, server: Server, client: int) -> Server:
        """What this client receives; the same for all, unless there is a model per group."""
        return {name: server[name] for name in self.sends}

    @client_side
    def client_init(self, x: Tensor) -> Rows:
        """Each client's memory before its first round."""
        return {}

    @client_side
    def begin(self, sent: Rows, mine: Rows) -> tuple[Tensor, Rows, Rows | None]:
        """The first local parameters, the memory, and a start for the optimiser's state or None."""
        return sent["x"], mine, None

    @client_side
    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor:
        """The gradient that the local optimiser applies."""
        return g

    @client_side
    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        """The message to the server, of rows and (K, 1) columns, and the next memory."""
        return {"dx": w - sent["x"]}, mine

    @client_side
    def settle(self, old: Rows, mine: Rows, arrived: Rows) -> Rows:
        """The next memory behind a wire: `arrived` is what reaches the server, now or later."""
        return mine

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        """The server's next state."""
        return {**server, "x": server["x"] + cohort.combine("dx")}

    @client_side
    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        """The model that a client's own metrics are measured on."""
        return sent["x"]

    def check(self, optimiser: Optimiser) -> None:
        """Raises StudyError, with the reason, for an optimiser that breaks the method's maths."""

    def check_clients(self, clients: int) -> None:
        """Raises StudyError where there are too few clients for the method."""

    def caution(self, split: Split) -> str | None:
        """What to expect where this way of dividing the data makes trouble for the method."""
        return None
