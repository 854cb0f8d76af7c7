"""The local work of methods that leave no choice."""

from __future__ import annotations

from typing import NamedTuple


class LocalWork(NamedTuple):
    """A client's passes over its data in a round, and its batch size; None is the full batch."""

    epochs: int
    batch_size: int | None
