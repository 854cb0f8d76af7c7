"""The clients that replied in a round, as `Algorithm.aggregate` sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NoReturn

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, pick
from tacit.federated.combine.combiner import Combiner, Selecting
from tacit.federated.combine.replies import ServerLoss


@dataclass(frozen=True)
class Cohort:
    """Messages, one row per client in the order of `ids`, and what may be done with them."""

    messages: Rows
    ids: tuple[int, ...]
    samples: Tensor  # (K, 1)
    steps: Tensor  # (K, 1)
    population: int  # of all clients, N
    everyone: float  # samples of all clients, whether they replied or not
    combiner: Combiner
    weighting: Literal["samples", "uniform"] = "samples"
    client_losses: Tensor | None = None  # (K, 1), the mean over the round's local work
    server_loss: ServerLoss | None = None
    needs_rows: bool = False

    @property
    def weights(self) -> Tensor:
        """p: each client's share, (K, 1), which sums to one over this cohort."""
        if self.weighting == "samples":
            counts = self.samples.double()
        else:
            counts = torch.ones_like(self.samples).double()
        return counts / counts.sum()

    @property
    def share(self) -> float:
        """How much of the population replied, by the same weights: one if everybody did."""
        if self.weighting == "samples":
            return float(self.samples.sum()) / self.everyone
        return len(self.ids) / self.population

    @cached_property
    def choice(self) -> Tensor:
        """The rows that a selecting combiner keeps: chosen on "dx", and valid for every entry."""
        assert isinstance(self.combiner, Selecting)
        return self.combiner.choose(self.messages["dx"], self)

    def combine(self, name: str) -> Tensor:
        """The study's combiner over that entry. # (P,)"""
        return self.combiner(self.messages[name], self)

    def mean(self, name: str) -> Tensor:
        """The weighted mean of that entry, whatever the combiner is. # (P,)"""
        return self.average(self.messages[name])

    def average(self, rows: Tensor) -> Tensor:
        """The weighted mean of one row per client. # (K, P) -> (P,)"""
        p = self.weights.to(rows)
        return (p.T @ rows)[0]  # one pass over the rows, and no second matrix of their size

    def total(self, name: str) -> Tensor:
        """The plain sum of that entry, which the algorithm names in `totals`. # (P,)"""
        return self.messages[name].sum(0)

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the clients' losses over the round's local work."""
        assert self.client_losses is not None
        return float(self.average(self.client_losses))

    def rows(self, name: str) -> Tensor:
        """Every client's own entry, for algorithms that declare `needs_rows`. # (K, P)"""
        if not self.needs_rows:
            raise StudyError(
                f"aggregate looks at single messages ({name}):"
                " declare needs_rows = True on the algorithm"
            )
        return self.messages[name]


RESERVED = ":"  # begins the names of what clients add to a message that will be summed
WEIGHT = ":weight"
LOSS = ":loss"
TOTAL = ":total "


@dataclass(frozen=True)
class SummedCohort:
    """The cohort of a server that sees sums only.

    Every entry is the sum of rows that clients have weighted themselves. What a `Cohort` knows of
    single clients is refused by name.
    """

    sums: Rows  # (1, P)
    ids: tuple[int, ...]
    population: int
    everyone: float
    weighting: Literal["samples", "uniform"] = "samples"

    @property
    def weighs(self) -> bool:
        """Whether the clients' weights add up to anything: a mean needs that."""
        return 0 < float(self.sums[WEIGHT]) < float("inf")

    @property
    def share(self) -> float:
        """How much of the population replied, by the same weights: one if everybody did."""
        full_weight = self.everyone if self.weighting == "samples" else self.population
        return float(self.sums[WEIGHT]) / full_weight

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the clients' losses over the round's local work."""
        return float(self.mean(LOSS))

    def combine(self, name: str) -> Tensor:
        """The weighted mean: no other combiner works on sums. # (P,)"""
        return self.mean(name)

    def mean(self, name: str) -> Tensor:
        """The weighted mean of that entry. # (P,)"""
        return (self.sums[name] / self.sums[WEIGHT])[0]

    def total(self, name: str) -> Tensor:
        """The plain sum of that entry. # (P,)"""
        if self.weighting == "uniform":
            return self.sums[name][0]
        if TOTAL + name not in self.sums:
            raise StudyError(
                f"clients weight {name} before it is summed, so its plain sum must be announced:"
                f" declare totals = ({name!r},) on the algorithm"
            )
        return self.sums[TOTAL + name][0]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise StudyError(
            f"a server that sees only sums does not know each client's {name}; leave out the sum"
        )


def weighted(message: Rows, weight: Tensor, loss: Tensor, totals: Sequence[str] = ()) -> Rows:
    """Messages as clients prepare them for a sum.

    Every entry, and the loss, is multiplied by the client's weight, which travels too. The entries
    that `totals` names also travel as they are.
    """
    entries = {**message, LOSS: loss}
    prepared = {name: weight * rows for name, rows in entries.items()}
    unweighted = {TOTAL + name: message[name] for name in totals if name in message}
    return {**prepared, **unweighted, WEIGHT: weight}


def in_order(
    messages: Rows, ids: Sequence[int], *columns: Tensor
) -> tuple[Rows, tuple[int, ...], tuple[Tensor, ...]]:
    """Messages, ids and columns, sorted by client.

    So the order in which replies arrive cannot change the rounding of a sum.
    """
    if list(ids) == sorted(ids):
        return messages, tuple(ids), columns
    order = torch.tensor(ids).argsort()
    sorted_columns = tuple(column[order] for column in columns)
    return pick(messages, order), tuple(sorted(ids)), sorted_columns
