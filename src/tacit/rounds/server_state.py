"""Where a run's server stands between two rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tacit.core.rows import Rows
from tacit.federated.algorithm import Server

Losses = Callable[[Tensor, int], Tensor]  # dx rows (K, P), sample size -> loss (K, 1)


@dataclass(frozen=True)
class ServerState:
    """The server's entries, the model's buffers, and the number of the next round."""

    server: Server  # "x" is the global model
    buffers: Rows
    round: int = 0
