"""Every registered behaviour keeps the contract, whoever wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from members import members

from tacit.federated.behaviour import Behaviour

BEHAVIOURS = members(Behaviour)
PLANNED = st.integers(0, 10_000)
WHEN = st.tuples(
    st.integers(0, 2**32), st.integers(0, 10_000), st.integers(0, 10_000)
)  # seed, client, round

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
    asked = [
        (seed, client, round) for seed in range(2) for client in range(5) for round in range(3)
    ]
    forth = {when: behaviour.steps(20, *when) for when in asked}
    back = {when: behaviour.steps(20, *when) for when in reversed(asked)}
    assert forth == back


@each
def test_where_nothing_is_planned_nothing_is_done(behaviour: Behaviour) -> None:
    assert {behaviour.steps(0, seed, client, 1) for seed in range(5) for client in range(20)} == {0}
