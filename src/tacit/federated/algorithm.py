"""A federated algorithm: read this file first.

All clients of all runs are rows of one matrix. A model is a row of P numbers, K clients are a (K, P) tensor, and an
algorithm is a frozen dataclass of a few pure hooks on rows. Its fields are its hyper-parameters. The defaults below are
FedAvg, so that FedProx overrides one hook. In a round, the engine does this:

    w, mine, start = begin(sent, mine)              each client, from what the server sent and its own memory
    repeat: g = correct(gradient(w), w, ...)        each client, at every local step
            w = optimiser(w, g)
    message, mine = finish(w, sent, mine, work)     each client
    server = aggregate(server, cohort)              the server: the only hook that looks across clients

Client hooks act row by row: K simulated clients and one deployed client are the same code. They see float fields as
(K, 1) columns, because rows may come from runs with different settings; so they never branch on a float field.
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
from tacit.federated.local_work import LocalWork
from tacit.training.optimisers import Optimiser
from tacit.training.trainer import Work

Server = Mapping[str, Any]  # (P,) tensors and scalars by name; "x" is the global model


@dataclass(frozen=True)
class Algorithm(Registered, family="algorithms", home="tacit.federated.algorithms"):
    """Base of the algorithms, and FedAvg by default. `weights`: clients count by samples, or all the same."""

    weights: Literal["samples", "uniform"] = field(default="samples", kw_only=True)

    neutral: ClassVar[
        Mapping[str, float] | None
    ] = {}  # the settings with which it is FedAvg, if there are such
    sends: ClassVar[tuple[str, ...]] = ("x",)  # the server entries that are broadcast
    local_work: ClassVar[LocalWork | None] = None  # set where the method leaves no choice
    needs_rows: ClassVar[bool] = (
        False  # aggregate looks at single messages: no secure sum, no central noise
    )
    totals: ClassVar[
        tuple[str, ...]
    ] = ()  # the message's entries that aggregate wants the plain sum of
    combines: ClassVar[bool] = True  # aggregate goes through the study's combiner
    whole_updates: ClassVar[bool] = True  # x + dx is a client's model
    sends_updates: ClassVar[bool] = (
        True  # clients send something that the wire or an attacker could change
    )
    starts_at_x: ClassVar[bool] = False  # it reads gradients off w - x, so clients must start at x
    keeps_all_models: ClassVar[bool] = False  # the server has a model of every client

    @property
    @client_side
    def needs_full_gradient(self) -> bool:
        """Whether `work.full_gradient` is wanted: each client's gradient over all its data, at sent["x"]."""
        return False

    def server_init(self, x: Tensor, population: int) -> Server:
        """The server's state before the first round, from the initial parameters."""
        return {"x": x}

    def send(self, server: Server, client: int) -> Server:
        """What this client receives: the entries that `sends` names, unless the method keeps one model per group."""
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
        """The memory to keep behind a wire: from the old one, the next, and what arrives or still will."""
        return mine

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        """The server's next state."""
        return {**server, "x": server["x"] + cohort.combine("dx")}

    @client_side
    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        """The model that a client's own metrics are measured on."""
        return sent["x"]

    def check(self, optimiser: Optimiser) -> None:
        """Raises StudyError, with the reason, for a local optimiser that breaks the method's maths."""

    def check_clients(self, clients: int) -> None:
        """Raises StudyError where there are too few clients for the method."""

    def caution(self, split: Split) -> str | None:
        """What to expect where this way of dividing the data makes trouble for the method."""
        return None
