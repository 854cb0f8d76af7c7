"""Training alone: the baseline that a federation has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.cohort import Cohort
from tacit.training.trainer import Work


@dataclass(frozen=True)
class Local(Algorithm, name="local"):
    """Every client trains alone and sends nothing; the global model stays untrained. A baseline for
    personal models."""

    neutral: ClassVar[Mapping[str, float] | None] = None
    combines: ClassVar[bool] = False
    sends_updates: ClassVar[bool] = False

    def client_init(self, x: Tensor) -> Rows:
        return {"w": x}

    def begin(self, sent: Rows, mine: Rows) -> tuple[Tensor, Rows, Rows | None]:
        return mine["w"], mine, None

    def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
        return {}, {"w": w}

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        return server

    def personal(self, sent: Rows, mine: Rows) -> Tensor:
        return mine["w"]
