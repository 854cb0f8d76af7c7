"""Every registered behaviour keeps the contract, whoever wrote it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from members import members

from tacit.federated.behaviour import Behaviour

BEHAVIOURS = members(Behaviour)
PLANNED = st.integers(0, 10_000)
NUMBERS = st.integers(0, 10_000)
WHEN = st.tuples(st.integers(0, 2**32), NUMBERS, NUMBERS)  # seed, client, round

each = pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)


@each
@settings(deadline=None, max_examples=50)
@given(planned=PLANNED, when=WHEN)
def test_a_client_takes_some_of_the_planned_steps_the_same_whenever_asked(
    behaviour: Behaviour, planned: int, when: tuple[int, int, int]
) -> None:
    steps = behaviour.steps(planned, *when)
    assert type(steps) is int
    assert 0 <= steps <= planned
    assert behaviour.steps(planned, *when) == steps


@each
def test_what_other_clients_were_asked_changes_nothing(behaviour: Behaviour) -> None:
    questions = list(itertools.product(range(2), range(5), range(3)))  # seed, client, round
    forth = {when: behaviour.steps(20, *when) for when in questions}
    back = {when: behaviour.steps(20, *when) for when in reversed(questions)}
    assert forth == back


@each
def test_where_nothing_is_planned_nothing_is_done(behaviour: Behaviour) -> None:
    for seed, client in itertools.product(range(5), range(20)):
        assert behaviour.steps(0, seed, client, 1) == 0
