"""Runs are divided into blocks of about equal work, which fit the memory."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from playground import FAST

from tacit.execution.blocks import divided, fitted
from tacit.execution.estimates import RunCost
from tacit.execution.plan import Block
from tacit.study.study import Study


def run_costs(*steps: int) -> dict[str, RunCost]:
    return {str(k): RunCost(1, count, count, 1, 1, 1.0, 0.0) for k, count in enumerate(steps)}


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 6))
def test_shares_hold_every_run_once_and_about_the_same_work(steps: list[int], count: int) -> None:
    costs = run_costs(*steps)
    run = Study(**FAST).runs()[0]
    shares = divided([(id, run) for id in costs], min(count, len(steps)), costs)
    positions = [[int(id) for id, _ in share] for share in shares]
    assert sorted(chain.from_iterable(positions)) == list(range(len(steps)))
    assert all(share == sorted(share) for share in positions)
    work = [sum(costs[id].steps for id, _ in share) for share in shares]
    assert max(work) - min(work) <= max(steps)


@given(st.integers(1, 500), st.integers(1, 10**6), st.integers(0, 10**9), st.integers(0, 10**9))
def test_rows_at_a_time_fit_the_memory_or_are_one(
    rows: int, row_bytes: int, fixed: int, room: int
) -> None:
    block = Block(0, ("a",), rows, 1, 1, 1, fixed + row_bytes, 1.0)
    limited = fitted(block, row_bytes, room)
    assert 1 <= limited.at_once <= rows
    assert limited.bytes == fixed + limited.at_once * row_bytes
    assert limited.bytes <= room or limited.at_once == 1
    assert limited.at_once == rows or limited.bytes + row_bytes > room  # no more would fit
    assert fitted(block, row_bytes, None).at_once == rows
