"""The base of the wire's stages, each of which has two sides.

The client's side changes the rows of a message (its (K, P) entries) before they travel, with a
memory per client; (K, 1) columns pass as they are. The server's side turns what arrived into what
`aggregate` reads. A stage says itself what its messages weigh, and what it still owes the server.

A stage that is `summed` is the last one: clients weight their messages before it, the server adds
up what it makes of them, and nobody can look at a single one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from tacit.core.registry import Registered
from tacit.core.rows import Rows, count_bytes

BUFFERS = ("buffers", "counters")  # the entries in which a model's buffers travel


class Load(NamedTuple):
    """What one row weighs: so many values of so many bits, and further bits beside them."""

    values: int
    bits: int
    extra: int = 0
    full: int = 32  # bits of a number that no stage has touched

    @property
    def bytes(self) -> int:
        return math.ceil((self.values * self.bits + self.extra) / 8)


@dataclass(frozen=True)
class Stage(Registered, family="stages", home="tacit.federated.wire"):
    """Base of the stages."""

    summed: ClassVar[bool] = False  # what it makes of messages can be added up, and nothing else

    @property
    def reads_sums(self) -> bool:
        """Whether a sum may follow: `server` of a weighted sum is the weighted sum of `server`."""
        return type(self).server is Stage.server

    def init(self, message: Rows) -> Rows:
        """A client's memory before its first message."""
        return {}

    @abstractmethod
    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        """The message as it travels, and the next memory.

        There is one seed per row, so that rows stay independent. Entries keep their names; others
        may be added.
        """

    def server(self, message: Rows) -> Rows:
        """What the server reads of messages that arrived, a row each; of a sum, one row."""
        return message

    def owed(self, memory: Rows) -> Rows:
        """What the server has not got yet and will get later, by entry of the message.

        An error feedback owes what it keeps back.
        """
        return {}

    def add(self, messages: Rows) -> Rows:
        """The sum of the messages of a stage that is summed. # (K, P) -> (1, P)"""
        return {name: rows.sum(0, keepdim=True) for name, rows in messages.items()}

    def load(self, load: Load, size: int) -> Load:
        """What a row of `size` values weighs after this stage, given what it weighed before."""
        return load


def rows_of(message: Rows) -> Rows:
    """The entries that a stage may change: the method's own rows, without the model's buffers."""
    entries = {name: value for name, value in message.items() if name not in BUFFERS}
    return {name: value for name, value in entries.items() if _is_rows(value)}


def _is_rows(value: Tensor) -> bool:
    """Whether each client has more than one number in it."""
    return value.dim() == 2 and value.shape[1] > 1


def message_bytes(message: Rows, stages: Sequence[Stage]) -> int:
    """What one client's message weighs as it travels."""
    rows = rows_of(message)
    untouched = {name: value for name, value in message.items() if name not in rows}
    total = count_bytes(untouched)
    for value in rows.values():
        size = value.shape[1]
        bits = 8 * value.element_size()
        load = Load(size, bits, full=bits)
        for stage in stages:
            load = stage.load(load, size)
        total += load.bytes
    return total
