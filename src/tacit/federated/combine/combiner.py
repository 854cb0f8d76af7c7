"""The base of the combiners."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tacit.core.registry import Registered

if TYPE_CHECKING:
    from tacit.federated.cohort import Cohort


@dataclass(frozen=True)
class Combiner(Registered, family="combiners", home="tacit.federated.combine"):
    """Called as `combiner(rows, cohort)`: (K, P) -> (P,)."""

    linear: ClassVar[bool] = False  # a secure or homomorphic sum serves linear combiners only
    needs_server_data: ClassVar[bool] = False  # cohort.server_loss, on samples set aside before the split

    @abstractmethod
    def __call__(self, rows: Tensor, cohort: Cohort) -> Tensor: ...
