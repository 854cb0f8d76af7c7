"""The clients that replied in a round, as `Algorithm.aggregate` sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, pick
from tacit.federated.combine.combiner import Combiner, Selecting


@dataclass(frozen=True)
class Cohort:
    """Messages, one row per client, and what may be done with them. Rows are in the order of `ids`."""

    messages: Rows
    ids: tuple[int, ...]
    samples: Tensor  # (K, 1)
    steps: Tensor  # (K, 1)
    population: int  # of all clients, N
    everyone: float  # samples of all clients, whether they replied or not
    combiner: Combiner
    weighting: Literal["samples", "uniform"] = "samples"
    client_losses: Tensor | None = None  # (K, 1), the mean over the round's local work
    server_loss: Callable[[Tensor, int], Tensor] | None = (
        None  # dx rows (K, P), sample size -> loss (K, 1)
    )
    needs_rows: bool = False

    @property
    def weights(self) -> Tensor:
        """p: each client's share, (K, 1), which sums to one over this cohort."""
        counts = (
            self.samples.double()
            if self.weighting == "samples"
            else torch.ones_like(self.samples).double()
        )
        return counts / counts.sum()

    @property
    def share(self) -> float:
        """How much of the population replied, by the same weights: one if everybody did."""
        return (
            float(self.samples.sum()) / self.everyone
            if self.weighting == "samples"
            else len(self.ids) / self.population
        )

    @cached_property
    def choice(self) -> Tensor:
        """The rows that a selecting combiner keeps. It chooses on "dx", and the choice holds for every entry."""
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
        return (self.weights.to(rows).T @ rows)[
            0
        ]  # one pass over the rows, and no second matrix of their size

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
                f"aggregate looks at single messages ({name}): declare needs_rows = True on the algorithm"
            )
        return self.messages[name]


RESERVED = ":"  # begins the names of what clients add to a message that will be summed
WEIGHT, LOSS, TOTAL = ":weight", ":loss", ":total "


@dataclass(frozen=True)
class SummedCohort:
    """The same where the server sees sums only: every entry is the sum of rows that clients have weighted themselves.

    What it does not have, it refuses by name.
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
        whole = self.everyone if self.weighting == "samples" else self.population
        return float(self.sums[WEIGHT]) / whole

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
            f"a server that sees sums only knows no {name} of single clients; leave out the sum"
        )


def weighted(message: Rows, weight: Tensor, loss: Tensor, totals: Sequence[str] = ()) -> Rows:
    """Messages as clients prepare them for a sum: every entry times the client's weight, and the weight itself."""
    plain_sums = {TOTAL + name: message[name] for name in totals if name in message}
    entries: dict[str, Any] = {**message, LOSS: loss}
    return {name: weight * rows for name, rows in entries.items()} | plain_sums | {WEIGHT: weight}


def in_order(
    messages: Rows, ids: Sequence[int], *columns: Tensor
) -> tuple[Rows, tuple[int, ...], tuple[Tensor, ...]]:
    """Sorts everything by client, so that the order in which replies arrive cannot change a sum's rounding."""
    if list(ids) == sorted(ids):
        return messages, tuple(ids), columns
    order = torch.tensor(ids).argsort()
    return pick(messages, order), tuple(sorted(ids)), tuple(column[order] for column in columns)
