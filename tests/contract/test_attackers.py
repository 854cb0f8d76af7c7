"""Every registered kind of attack keeps the contract, whoever wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from members import members
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.federated.wire.attackers import Attackers

CLASSES = 4


def accepted(attack: Attackers) -> bool:
    try:
        attack.check(population=4, classes=CLASSES)
    except StudyError:
        return False
    return True


ATTACKERS = [attack for attack in members(Attackers) if accepted(attack)]
each = pytest.mark.parametrize("attack", ATTACKERS, ids=str)


def updates(count: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, 11, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def samples(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Forty of them, of four classes."""
    draw = torch.Generator().manual_seed(3)
    return torch.rand(40, *shape, generator=draw), torch.arange(40) % CLASSES


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(9)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("honest", [0, 1, 3])
@pytest.mark.parametrize("liars", [1, 2])
def test_a_lie_has_the_form_of_an_update(
    attack: Attackers, liars: int, honest: int, dtype: torch.dtype
) -> None:
    lying = updates(liars, 0, dtype)
    truthful = updates(honest, 1, dtype)
    lie = attack.lie(lying, truthful, generator())
    assert (lie.shape, lie.dtype) == (lying.shape, lying.dtype)
    assert lie.isfinite().all()
    assert torch.equal(lying, updates(liars, 0, dtype))
    assert torch.equal(truthful, updates(honest, 1, dtype))


@each
def test_the_same_seed_tells_the_same_lie(attack: Attackers) -> None:
    lying = updates(2, 0, torch.float32)
    truthful = updates(3, 1, torch.float32)
    first = attack.lie(lying, truthful, generator())
    second = attack.lie(lying, truthful, generator())
    assert torch.equal(first, second)


@each
@pytest.mark.parametrize("shape", [(5,), (1, 8, 8), (3, 8, 8)], ids=str)
def test_poisoned_data_have_the_form_of_the_data(attack: Attackers, shape: tuple[int, ...]) -> None:
    x, y = samples(shape)
    poisoned_x, poisoned_y = attack.poison(x, y, CLASSES, generator())
    assert (poisoned_x.shape, poisoned_x.dtype) == (x.shape, x.dtype)
    assert (poisoned_y.shape, poisoned_y.dtype) == (y.shape, y.dtype)
    assert int(poisoned_y.min()) >= 0
    assert int(poisoned_y.max()) < CLASSES
    assert torch.equal(x, samples(shape)[0])
    assert torch.equal(y, samples(shape)[1])


@each
def test_the_same_seed_poisons_the_same(attack: Attackers) -> None:
    x, y = samples((1, 8, 8))
    first_x, first_y = attack.poison(x, y, CLASSES, generator())
    second_x, second_y = attack.poison(x, y, CLASSES, generator())
    assert torch.equal(first_x, second_x)
    assert torch.equal(first_y, second_y)


@pytest.mark.parametrize("kind", list(Attackers.known()))
def test_data_are_changed_where_the_kind_says_so_and_nowhere_else(kind: str) -> None:
    attack = Attackers.build(kind)
    x, y = samples((1, 8, 8))
    poisoned_x, poisoned_y = attack.poison(x, y, CLASSES, generator())
    changed = not (torch.equal(poisoned_x, x) and torch.equal(poisoned_y, y))
    assert changed == attack.poisons


@pytest.mark.parametrize(
    "kind", [kind for kind, cls in Attackers.known().items() if not cls.needs_classes]
)
def test_a_kind_that_needs_no_classes_takes_numbers_to_predict(kind: str) -> None:
    x, y = samples((5,))
    numbers = y / 3
    poisoned_x, poisoned_y = Attackers.build(kind).poison(x, numbers, 0, generator())
    assert poisoned_x.shape == x.shape
    assert (poisoned_y.shape, poisoned_y.dtype) == (numbers.shape, numbers.dtype)


@each
@pytest.mark.parametrize("population", [4, 50])
def test_as_many_clients_attack_as_were_asked_for(attack: Attackers, population: int) -> None:
    for several in with_counts(attack, (1, 2, population - 1)):
        several.check(population)
        for seed in range(10):
            who = several.who(population, seed)
            assert len(set(who)) == len(who) == several.count
            assert set(who) <= set(range(population))
            assert several.who(population, seed) == who


def with_counts(attack: Attackers, counts: tuple[int, ...]) -> list[Any]:
    """The same attack by so many clients; nobody stays nobody."""
    if not attack.count:
        return [attack]
    return [replace(attack, count=count) for count in counts]
