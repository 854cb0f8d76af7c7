"""Which vectors of different clients are the same thing: bags of vectors are assigned to common atoms.

An atom theta has the prior N(mean, 1/precision) in every dimension, client j's vectors are noisy copies of atoms, at
most one of each, and how many clients share an atom follows an Indian buffet process of mass gamma. With all other
clients fixed, the best places for client j's vectors are a linear assignment problem. Yurochkin, Agarwal, Ghosh,
Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of Neural Networks, 2019, propositions 1 and 2.

With a = mean precision + sum_members p v and c = precision + sum_members p, where p is a vector's own precision:

    gain of v at an atom    sum_d (a + p v)^2 / (c + p) - a^2 / c     + 2 log(m / (J - m))
    at the r-th new atom    the same, with the prior's own a and c    + 2 log(gamma / J) - 2 log r

where m of the J clients, j aside, have the atom. `integrated` averages over theta instead of taking the best one, which
adds sum_d log(c / (c + p)). The estimate of an atom is a / c.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Floats = NDArray[np.float64]
Places = NDArray[np.int64]  # which atom each of a client's vectors belongs to
PROBES = 3  # prices that are tried for new atoms


@dataclass(frozen=True)
class Bag:
    """A client's vectors, (n, D), and their precision in every dimension, (D,)."""

    vectors: Floats
    precision: Floats


@dataclass(frozen=True)
class Prior:
    """What atoms look like before any is seen: mean and precision, (D,)."""

    mean: Floats
    precision: Floats


@dataclass(frozen=True)
class Rules:
    """How atoms are shared, and how long to look for the best assignment."""

    gamma: float = 1.0  # the larger, the more atoms
    sweeps: int = 5  # over all clients, at most
    integrated: bool = False
    shrinks: bool = (
        True  # whether estimates are drawn to the prior's mean, or plain means of members
    )
    popularity: float = 2.0  # the factor of log(m / (J - m))
    most_counted: int | None = None  # of m
    most_atoms: int | None = None


@dataclass(frozen=True)
class Matching:
    """Which atom each vector belongs to, and the atoms."""

    places: tuple[Places, ...]  # for each client
    atoms: Floats  # (L, D), estimated
    counts: Places  # (L,), how many clients have the atom
    solving: float  # seconds in the assignment solver


@dataclass
class Atoms:
    """Sums over the members of each atom."""

    natural: Floats  # (L, D): a
    precision: Floats  # (L, D): c
    counts: Places  # (L,)

    @classmethod
    def empty(cls, prior: Prior, count: int, shift: Floats | None = None) -> Atoms:
        """Atoms without members; `shift` takes the place of the prior's a."""
        start = prior.mean * prior.precision if shift is None else shift
        return cls(
            np.tile(start, (count, 1)),
            np.tile(prior.precision, (count, 1)),
            np.zeros(count, np.int64),
        )

    @classmethod
    def of(
        cls,
        bags: Sequence[Bag],
        places: Sequence[Places],
        prior: Prior,
        shift: Floats | None = None,
    ) -> Atoms:
        """The atoms of all clients' vectors."""
        found = cls.empty(prior, 1 + max(int(own.max(initial=-1)) for own in places), shift)
        for bag, own in zip(bags, places, strict=True):
            found.add(bag, own)
        return found

    def add(self, bag: Bag, places: Places, sign: int = 1) -> None:
        """Adds a client's vectors or, with the sign -1, takes them away."""
        self.natural[places] += sign * bag.precision * bag.vectors
        self.precision[places] += sign * bag.precision
        self.counts[places] += sign

    def estimate(self, prior: Prior) -> Floats:
        """a / c; where nobody says anything, and the prior has no weight, its mean. # (L, D)"""
        told = self.precision > 0
        return np.where(told, self.natural / np.where(told, self.precision, 1), prior.mean)

    def take(self, index: Places | NDArray[np.bool_]) -> Atoms:
        """Some of the atoms."""
        return Atoms(self.natural[index], self.precision[index], self.counts[index])

    def extend(self, other: Atoms) -> Atoms:
        """These atoms, then the others."""
        pairs = [
            (getattr(self, name), getattr(other, name))
            for name in ("natural", "precision", "counts")
        ]
        return Atoms(*(np.concatenate(pair) for pair in pairs))


Update = Callable[
    [Sequence[Places]], tuple[Sequence[Bag], Prior]
]  # hyper-parameters that follow from the places


def gains(bag: Bag, atoms: Atoms, *, integrated: bool = False) -> Floats:
    """Twice what the log-posterior or log-marginal gains by each vector at each atom, but for the sharing. # (n, L)"""
    weighted = bag.precision * bag.vectors  # (n, D)
    after = 1 / (atoms.precision + bag.precision)  # (L, D)
    scaled = atoms.natural * after
    fixed = (atoms.natural * (scaled - atoms.natural / atoms.precision)).sum(1)  # (L,)
    if integrated:
        fixed += np.log(after * atoms.precision).sum(1)
    found: Floats = weighted @ (2 * scaled).T
    first = np.flatnonzero(
        np.append(True, (after[:, 1:] != after[:, :-1]).any(0))
    )  # of dimensions with one precision
    found += np.add.reduceat(np.square(weighted), first, axis=1) @ after[:, first].T
    found += fixed
    return found


def costs(
    bag: Bag, atoms: Atoms, prior: Prior, clients: int, rules: Rules
) -> tuple[Floats, Floats]:
    """What an assignment minimises: the negative gains at the atoms, (n, L), and at a first new one, (n,)."""
    counts = np.minimum(atoms.counts, rules.most_counted or clients)
    known = gains(bag, atoms, integrated=rules.integrated)
    known += rules.popularity * np.log(counts / (clients - counts))
    alone = gains(bag, Atoms.empty(prior, 1), integrated=rules.integrated)[:, 0] + 2 * np.log(
        rules.gamma / clients
    )
    return np.negative(known, out=known), -alone


def assign(
    known: Floats, alone: Floats, most_new: int | None = None, guess: int | None = None
) -> Places:
    """The columns with the least cost in all, one per row; L and above are new atoms, of which the r-th costs 2 log r.

    Columns that differ by a constant keep the solver searching, and those of new atoms do; equal ones do not. So where
    many rows want new atoms, all of them get one price at first. Their cost is convex in their number, hence the best
    number lies between the one that is best at a price and the r whose price, 2 log r, it is. Once `least` of them are
    known to be wanted, so many may as well cost the same. `guess` is how many that may be.
    """
    size, there = known.shape
    least, most = 1, size if most_new is None else min(size, most_new)
    wanted = int((known.min(1, initial=np.inf) > alone).sum()) if guess is None else guess
    for _ in range(PROBES if most_new is None and wanted > size // 10 else 0):
        columns = _solve(known, alone, np.full(most, 2 * np.log(wanted)))
        made = int((columns >= there).sum())
        if made == wanted:
            return columns
        least, most = max(least, min(made, wanted)), min(most, max(made, wanted))
        wanted = (least + most) // 2
    return _solve(known, alone, 2 * np.log(np.maximum(np.arange(1, most + 1), least)))


def _solve(known: Floats, alone: Floats, prices: Floats) -> Places:
    matrix = np.hstack([known, alone[:, None] + prices])
    return np.asarray(linear_sum_assignment(matrix)[1], np.int64)


def match(
    bags: Sequence[Bag],
    prior: Prior,
    rules: Rules,
    draw: np.random.Generator,
    *,
    start: Sequence[Places] | None = None,
    start_shift: Floats | None = None,
    update: Update | None = None,
) -> Matching:
    """Places for all vectors: the largest client first, then sweeps in random order until nothing changes.

    `start` goes on from known places; `start_shift`, in place of the prior's a, stays with the atoms that are known
    there. `update` gives the hyper-parameters anew after the first pass and every sweep.
    """
    descent = _Descent(bags, prior, rules)
    shifted = start is not None and start_shift is not None
    if start is None:
        for client in sorted(range(len(bags)), key=lambda j: -len(bags[j].vectors)):
            descent.place(client)
    else:
        descent.places = [np.asarray(own) for own in start]
        descent.atoms = Atoms.of(bags, start, prior, start_shift)
    for _ in range(rules.sweeps):
        if update:
            descent.renew(*update(descent.places))
        changed = [descent.replace(int(client)) for client in draw.permutation(len(bags))]
        if (
            not any(changed) and not shifted
        ):  # a client's own atoms are made anew, and then without the shift
            break
    if update:
        descent.renew(*update(descent.places))
    final = descent.atoms
    if not shifted:
        prior = (
            descent.prior
            if rules.shrinks
            else Prior(descent.prior.mean, np.zeros_like(descent.prior.mean))
        )
        final = Atoms.of(
            descent.bags, descent.places, prior
        )  # without the rounding of all that came and went
    return Matching(
        tuple(descent.places), final.estimate(descent.prior), final.counts, descent.solving
    )


class _Descent:
    """Clients that look for their places one after another."""

    def __init__(self, bags: Sequence[Bag], prior: Prior, rules: Rules) -> None:
        self.bags, self.prior, self.rules = bags, prior, rules
        self.places: list[Places] = [np.zeros(0, np.int64)] * len(bags)
        self.atoms = Atoms.empty(prior, 0)
        self.solving = 0.0

    def place(self, client: int, guess: int | None = None) -> None:
        """Finds places for a client that has none; about `guess` of its vectors will have atoms of their own."""
        bag, there = self.bags[client], len(self.atoms.counts)
        most = self.rules.most_atoms
        most_new = (
            None if most is None else max(most - there, len(bag.vectors) - there, 1)
        )  # all need a place
        known, alone = costs(bag, self.atoms, self.prior, len(self.bags), self.rules)
        begin = time.perf_counter()
        found = assign(known, alone, most_new, guess)
        self.solving += time.perf_counter() - begin
        new = found >= there
        found[new] = there + np.arange(
            new.sum()
        )  # new atoms are alike: in the order of their vectors
        if new.any():
            self.atoms = self.atoms.extend(Atoms.empty(self.prior, int(new.sum())))
        self.atoms.add(bag, found)
        self.places[client] = found

    def replace(self, client: int) -> bool:
        """Takes a client out and finds places for it again; whether they are others."""
        self.atoms.add(self.bags[client], self.places[client], -1)
        kept = self.atoms.counts > 0
        now = np.where(kept, np.cumsum(kept) - 1, -1)
        self.atoms = self.atoms if kept.all() else self.atoms.take(kept)
        self.places = [now[own] for own in self.places]
        before = self.places[client]
        self.place(client, int((before < 0).sum()))
        after = self.places[client]
        return not np.array_equal(before, np.where(after < kept.sum(), after, -1))

    def renew(self, bags: Sequence[Bag], prior: Prior) -> None:
        """Other hyper-parameters, the same places."""
        self.bags, self.prior = bags, prior
        self.atoms = Atoms.of(bags, self.places, prior)
