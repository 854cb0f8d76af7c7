"""A client in one round: what it starts from, what it drafts, what it sends and what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tacit.core.rows import Rows, columns
from tacit.core.seeds import derive
from tacit.federated.algorithm import Algorithm
from tacit.federated.client_side import client_class
from tacit.study.kinds.horizontal import HorizontalRun

# a client's steps, and its loss and hits; these are None if it saw no sample
TrainingFigures = tuple[int, float | None, float | None]


@dataclass(frozen=True)
class Memory:
    """What a client remembers between rounds."""

    method: Rows = field(default_factory=dict)  # the algorithm's, such as SCAFFOLD's c_k
    wire: Rows = field(default_factory=dict)  # "0 dx" is that of the first stage for the entry dx


@dataclass(frozen=True)
class Participant:
    """A client in one round."""

    run: HorizontalRun
    client: int
    round: int  # the first is 0
    shard: Tensor  # its training samples, as indices into the trainer's
    initial: Tensor  # (P,), the global parameters before the first round
    memory: Memory = field(default_factory=Memory)
    own_start: Tensor | None = None  # (1, P), in place of what was sent

    def seed(self, purpose: str) -> int:
        return derive(self.run.seed, purpose, self.client, self.round)


@dataclass(frozen=True)
class Draft:
    """What a client would send if there were no wire; every tensor has one row."""

    client: int
    figures: TrainingFigures
    message: Rows
    method_memory: Rows  # the next one
    samples: Tensor
    steps: Tensor
    loss: Tensor
    honest: bool = True  # the memory follows what arrives; a liar's does not


@dataclass(frozen=True)
class Reply:
    """What reaches the server; every tensor has one row.

    Where messages are summed, the columns samples, steps and loss are not sent.
    """

    client: int
    round: int
    message: Rows
    samples: Tensor | None = None
    steps: Tensor | None = None
    loss: Tensor | None = None


@dataclass(frozen=True)
class ClientOutcome:
    """What a round comes to for a client: the reply, and what stays with the client."""

    reply: Reply
    memory: Memory  # to be kept once the reply is accepted
    figures: TrainingFigures
    bytes: int  # of the reply

    @property
    def client(self) -> int:
        return self.reply.client


def client_view(algorithms: Sequence[Algorithm], like: Tensor) -> Algorithm:
    """The client's side of these algorithms, one row each, with columns for float fields."""
    return columns(algorithms, client_class(type(algorithms[0])), like)


def remembered(participant: Participant, view: Algorithm | None = None) -> Memory:
    """The client's memory; before its first round, a new one.

    `view` is the client's side of its algorithm, if that has been made already.
    """
    if participant.memory.method:
        return participant.memory
    x = participant.initial[None]
    view = view or client_view([participant.run.algorithm], x)
    return Memory(view.client_init(x), participant.memory.wire)
