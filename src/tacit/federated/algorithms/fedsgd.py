"""FedSGD.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, 2017, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.core.errors import StudyError
from tacit.federated.algorithm import Algorithm
from tacit.federated.local_work import LocalWork, OneStep
from tacit.training.optimisers import SGD, Optimiser


@dataclass(frozen=True)
class FedSGD(Algorithm, name="fedsgd"):
    """One full-batch gradient step per round, averaged: gradient descent on the pooled data
    (McMahan et al., 2017).

    Server:  x <- x - lr sum_k p_k G_k(x)
    """

    local_work: ClassVar[LocalWork | None] = LocalWork(epochs=1, batch_size=None)
    fedavg_in_one_step: ClassVar[OneStep] = "always"

    def check(self, optimiser: Optimiser) -> None:
        if not isinstance(optimiser, SGD):
            raise StudyError(
                f"fedsgd averages plain gradients, which {optimiser.name} would rescale;"
                " use optimiser: sgd"
            )
