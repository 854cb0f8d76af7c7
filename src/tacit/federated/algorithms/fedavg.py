"""FedAvg.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, 2017, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.federated.algorithm import Algorithm
from tacit.federated.local_work import OneStep


@dataclass(frozen=True)
class FedAvg(Algorithm, name="fedavg"):
    """Federated averaging: clients train on their own, the server averages (McMahan et al., 2017).

    Client k, tau_k times:  w <- w - lr G_k(w)
    Server:                 x <- x + sum_k p_k (w_k - x),
                            p_k = n_k / sum of n over the clients that replied
    """

    fedavg_in_one_step: ClassVar[OneStep] = "always"
