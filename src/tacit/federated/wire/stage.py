"""The base of the wire's stages: message -> message, on rows, with a memory per client.

A stage changes the rows of a message (its (K, P) entries) into what the server will read, and says what they weigh
while they travel. (K, 1) columns pass as they are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tacit.core.registry import Registered
from tacit.core.rows import Rows, count_bytes

BUFFERS = ("buffers", "counters")  # the entries in which a model's buffers travel


class Load(NamedTuple):
    """What one row weighs: so many values of so many bits, and further bits beside them."""

    values: int
    bits: int
    extra: int = 0

    @property
    def bytes(self) -> int:
        return math.ceil((self.values * self.bits + self.extra) / 8)


@dataclass(frozen=True)
class Stage(Registered, family="stages", home="tacit.federated.wire"):
    """Base of the stages."""

    summed: ClassVar[bool] = False  # its messages mean nothing alone, only their sum

    def init(self, message: Rows) -> Rows:
        """A client's memory before its first message."""
        return {}

    @abstractmethod
    def client(self, message: Rows, memory: Rows, seeds: Sequence[int]) -> tuple[Rows, Rows]:
        """The message as it arrives, and the next memory; one seed per row, so that rows stay independent."""

    def server(self, message: Rows) -> Rows:
        """The server's side: the message as the method reads it."""
        return message

    def owed(self, memory: Rows) -> Rows:
        """What the stage will still send, by entry; of an entry that is named here, nothing is ever lost."""
        return {}

    def load(self, load: Load, size: int) -> Load:
        """What a row of `size` values weighs after this stage, given what it weighed before."""
        return load


def rows_of(message: Rows) -> Rows:
    """The entries that a stage may change: the method's own, and not the model's buffers."""
    own = {name: value for name, value in message.items() if name not in BUFFERS}
    return {name: value for name, value in own.items() if value.dim() == 2 and value.shape[1] > 1}


def message_bytes(message: Rows, stages: Sequence[Stage]) -> int:
    """What one client's message weighs as it travels."""
    rows, total = rows_of(message), 0
    for value in rows.values():
        load = Load(value.shape[1], 8 * value.element_size())
        for stage in stages:
            load = stage.load(load, value.shape[1])
        total += load.bytes
    return total + count_bytes({name: value for name, value in message.items() if name not in rows})
