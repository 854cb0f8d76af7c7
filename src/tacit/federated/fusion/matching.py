"""Which vectors of different clients are the same thing: bags of vectors share atoms.

An atom theta has the prior N(mean, 1/precision) in every dimension. Client j's vectors are noisy
copies of atoms, at most one of each, and how many clients share an atom follows an Indian buffet
process of mass gamma. With all other clients fixed, the best atoms for client j's vectors are a
linear assignment problem. Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian
Nonparametric Federated Learning of Neural Networks, 2019, propositions 1 and 2.

With a = mean precision + sum_members p v and c = precision + sum_members p, where p is a vector's
own precision:

    gain of v at an atom    sum_d (a + p v)^2 / (c + p) - a^2 / c     + 2 log(m / (J - m))
    at the r-th new atom    the same, with the prior's own a and c    + 2 log(gamma / J) - 2 log r

where m of the J clients, j aside, have the atom. `integrated` averages over theta instead of taking
the best one, which adds sum_d log(c / (c + p)). The estimate of an atom is a / c.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from tacit.core.arrays import Floats

Integers = NDArray[np.int64]
Places = Integers  # the index of the atom that each of a client's vectors belongs to
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
    shrinks: bool = True  # estimates are drawn to the prior's mean, or are plain means of members
    popularity: float = 2.0  # the factor of log(m / (J - m))
    most_counted: int | None = None  # of m
    most_atoms: int | None = None


@dataclass(frozen=True)
class Matching:
    """Which atom each vector belongs to, and the atoms."""

    places: tuple[Places, ...]  # for each client
    atoms: Floats  # (L, D), estimated
    counts: Integers  # (L,), how many clients have the atom
    solving: float  # seconds in the assignment solver


@dataclass
class Atoms:
    """Sums over the members of each atom."""

    natural: Floats  # (L, D): a
    precision: Floats  # (L, D): c
    counts: Integers  # (L,)

    @classmethod
    def empty(cls, prior: Prior, count: int, shift: Floats | None = None) -> Atoms:
        """Atoms without members; `shift` is used instead of the prior's a."""
        a = prior.mean * prior.precision if shift is None else shift
        natural = np.tile(a, (count, 1))
        precision = np.tile(prior.precision, (count, 1))
        return cls(natural, precision, np.zeros(count, np.int64))

    @classmethod
    def of(
        cls,
        bags: Sequence[Bag],
        places: Sequence[Places],
        prior: Prior,
        shift: Floats | None = None,
    ) -> Atoms:
        """The atoms of all clients' vectors."""
        last = max(int(indices.max(initial=-1)) for indices in places)
        atoms = cls.empty(prior, last + 1, shift)
        for bag, indices in zip(bags, places, strict=True):
            atoms.add(bag, indices)
        return atoms

    def add(self, bag: Bag, indices: Places, sign: int = 1) -> None:
        """Adds a client's vectors to these atoms or, with the sign -1, takes them away."""
        self.natural[indices] += sign * bag.precision * bag.vectors
        self.precision[indices] += sign * bag.precision
        self.counts[indices] += sign

    def estimate(self, prior: Prior) -> Floats:
        """a / c, or the prior's mean where nothing has any weight. # (L, D)"""
        weighed = self.precision > 0
        quotient = self.natural / np.where(weighed, self.precision, 1)
        return np.where(weighed, quotient, prior.mean)

    def take(self, index: Integers | NDArray[np.bool_]) -> Atoms:
        """Some of the atoms."""
        return Atoms(self.natural[index], self.precision[index], self.counts[index])

    def extend(self, more: Atoms) -> Atoms:
        """These atoms, and more after them."""
        natural = np.concatenate([self.natural, more.natural])
        precision = np.concatenate([self.precision, more.precision])
        counts = np.concatenate([self.counts, more.counts])
        return Atoms(natural, precision, counts)


# New hyper-parameters, which follow from the places of all clients' vectors.
Reestimation = Callable[[Sequence[Places]], tuple[Sequence[Bag], Prior]]


def gains(bag: Bag, atoms: Atoms, *, integrated: bool = False) -> Floats:
    """Twice what the log-posterior, or log-marginal, gains by each vector at each atom. # (n, L)

    What depends on how many clients share the atom is left out.
    """
    weighted = bag.precision * bag.vectors  # (n, D)
    after = 1 / (atoms.precision + bag.precision)  # (L, D)
    scaled = atoms.natural * after
    fixed = (atoms.natural * (scaled - atoms.natural / atoms.precision)).sum(1)  # (L,)
    if integrated:
        fixed += np.log(after * atoms.precision).sum(1)
    gain: Floats = weighted @ (2 * scaled).T
    # Neighbouring dimensions with one precision are summed before they are multiplied.
    changes = (after[:, 1:] != after[:, :-1]).any(0)
    first = np.flatnonzero(np.append(True, changes))
    squares = np.add.reduceat(np.square(weighted), first, axis=1)
    gain += squares @ after[:, first].T
    gain += fixed
    return gain


def costs(
    bag: Bag, atoms: Atoms, prior: Prior, clients: int, rules: Rules
) -> tuple[Floats, Floats]:
    """What an assignment minimises: negative gains at the atoms, (n, L), and at a new one, (n,).

    The new one is the first; the r-th costs 2 log r more.
    """
    at_atoms = gains(bag, atoms, integrated=rules.integrated)
    m = np.minimum(atoms.counts, rules.most_counted or clients)
    at_atoms += rules.popularity * np.log(m / (clients - m))
    new_atom = Atoms.empty(prior, 1)
    at_new = gains(bag, new_atom, integrated=rules.integrated)[:, 0]
    at_new = at_new + 2 * np.log(rules.gamma / clients)
    return np.negative(at_atoms, out=at_atoms), -at_new


def assign(
    at_atoms: Floats, at_new: Floats, most_new: int | None = None, guess: int | None = None
) -> Places:
    """The columns with the least cost in all, one per row.

    Columns from L on are new atoms, and the r-th of them costs 2 log r more than the first.

    The solver searches long among columns that differ by a constant, as those of new atoms do, but
    not among equal ones. So where many rows want new atoms, all have one price at first. The cost
    is convex in their number, hence the best number lies between the one that is best at a price
    and the r whose price, 2 log r, it is. Once at least `least` of them are needed, so many may as
    well have one price. `guess` is how many may be needed.
    """
    size, count = at_atoms.shape
    least = 1
    most = size if most_new is None else min(size, most_new)
    if guess is None:
        prefers_new = at_atoms.min(1, initial=np.inf) > at_new
        guess = int(prefers_new.sum())
    if most_new is None and guess > size // 10:
        for _ in range(PROBES):
            price = 2 * np.log(guess)
            columns = _solve(at_atoms, at_new, np.full(most, price))
            created = int((columns >= count).sum())
            if created == guess:
                return columns
            least = max(least, min(created, guess))
            most = min(most, max(created, guess))
            guess = (least + most) // 2
    r = np.arange(1, most + 1)
    prices = 2 * np.log(np.maximum(r, least))
    return _solve(at_atoms, at_new, prices)


def _solve(at_atoms: Floats, at_new: Floats, prices: Floats) -> Places:
    matrix = np.hstack([at_atoms, at_new[:, None] + prices])
    return np.asarray(linear_sum_assignment(matrix)[1], np.int64)


def match(
    bags: Sequence[Bag],
    prior: Prior,
    rules: Rules,
    rng: np.random.Generator,
    *,
    start: Sequence[Places] | None = None,
    start_shift: Floats | None = None,
    update: Reestimation | None = None,
) -> Matching:
    """Assigns all vectors to atoms: the largest client first, then sweeps in random order.

    Sweeps end when nothing changes. With `start`, it goes on from earlier places, whose atoms have
    `start_shift` in place of the prior's a. `update` renews the hyper-parameters after the first
    pass and after every sweep.
    """
    descent = _Descent(bags, prior, rules)
    shifted = start is not None and start_shift is not None
    if start is None:
        descent.add_all_clients()
    else:
        descent.go_on_from(start, start_shift)
    for _ in range(rules.sweeps):
        if update:
            descent.renew(*update(descent.places))
        changed = descent.sweep(rng.permutation(len(bags)))
        # A sweep makes clients' own atoms anew, without the shift, so the next may change more.
        if not changed and not shifted:
            break
    if update:
        descent.renew(*update(descent.places))
    atoms = descent.atoms if shifted else descent.atoms_summed_anew()
    estimate = atoms.estimate(descent.prior)
    return Matching(tuple(descent.places), estimate, atoms.counts, descent.solving)


class _Descent:
    """Clients whose vectors are assigned to atoms, one client after another."""

    def __init__(self, bags: Sequence[Bag], prior: Prior, rules: Rules) -> None:
        self.bags = bags
        self.prior = prior
        self.rules = rules
        nowhere = np.zeros(0, np.int64)
        self.places: list[Places] = [nowhere] * len(bags)
        self.atoms = Atoms.empty(prior, 0)
        self.solving = 0.0

    def add_all_clients(self) -> None:
        """The largest first."""
        sizes = [len(bag.vectors) for bag in self.bags]
        clients = range(len(sizes))
        for client in sorted(clients, key=lambda client: sizes[client], reverse=True):
            self.add_client(client)

    def go_on_from(self, start: Sequence[Places], shift: Floats | None) -> None:
        """Atoms as they were assigned before."""
        self.places = [np.asarray(indices) for indices in start]
        self.atoms = Atoms.of(self.bags, start, self.prior, shift)

    def add_client(self, client: int, guess: int | None = None) -> None:
        """Assigns a client's vectors; about `guess` of them will have atoms of their own."""
        bag = self.bags[client]
        count = len(self.atoms.counts)
        most_new = self._most_new(len(bag.vectors))
        at_atoms, at_new = costs(bag, self.atoms, self.prior, len(self.bags), self.rules)
        begin = time.perf_counter()
        indices = assign(at_atoms, at_new, most_new, guess)
        self.solving += time.perf_counter() - begin
        new = indices >= count
        created = int(new.sum())
        indices[new] = count + np.arange(created)  # new atoms are alike: in the vectors' order
        if created:
            self.atoms = self.atoms.extend(Atoms.empty(self.prior, created))
        self.atoms.add(bag, indices)
        self.places[client] = indices

    def _most_new(self, size: int) -> int | None:
        """How many atoms a client of so many vectors may add: all vectors need one."""
        if self.rules.most_atoms is None:
            return None
        count = len(self.atoms.counts)
        return max(self.rules.most_atoms - count, size - count, 1)

    def sweep(self, order: Iterable[int]) -> bool:
        """Assigns all clients anew, in this order; returns whether anything has changed."""
        changed = False
        for client in order:
            if self.reassign(int(client)):
                changed = True
        return changed

    def reassign(self, client: int) -> bool:
        """Takes a client out and adds it again; returns whether its atoms are others now."""
        self.atoms.add(self.bags[client], self.places[client], -1)
        used = self.atoms.counts > 0
        new_index = np.where(used, np.cumsum(used) - 1, -1)
        if not used.all():
            self.atoms = self.atoms.take(used)
        self.places = [new_index[indices] for indices in self.places]
        before = self.places[client]  # -1 where it alone had the atom
        alone = int((before < 0).sum())
        self.add_client(client, alone)
        after = self.places[client]
        shared = after < used.sum()
        return not np.array_equal(before, np.where(shared, after, -1))

    def renew(self, bags: Sequence[Bag], prior: Prior) -> None:
        """Changes the hyper-parameters; all vectors stay with their atoms."""
        self.bags = bags
        self.prior = prior
        self.atoms = Atoms.of(bags, self.places, prior)

    def atoms_summed_anew(self) -> Atoms:
        """The atoms without the rounding of all that came and went."""
        prior = self.prior
        if not self.rules.shrinks:
            prior = Prior(prior.mean, np.zeros_like(prior.mean))
        return Atoms.of(self.bags, self.places, prior)
