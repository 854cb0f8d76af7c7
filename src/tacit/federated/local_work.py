"""The local work of methods that leave no choice."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Whether a method does what FedAvg does if clients take one local step per round. "averaged": only
# where all take part, step by plain SGD, and messages are averaged as they are.
OneStep = Literal["always", "averaged", "never"]


class LocalWork(NamedTuple):
    """A client's passes over its data in a round, and its batch size; None is the full batch."""

    epochs: int
    batch_size: int | None
