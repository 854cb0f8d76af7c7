"""Messages gathered in matrices: the same numbers, and no copy where none is needed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.rows import Rows
from tacit.rounds.inbox import Inbox, stacked


def a_message(value: float) -> Rows:
    counters = torch.full((1, 2), int(value))
    return {"dx": torch.full((1, 4), value), "a": torch.full((1, 1), value), "counters": counters}


@pytest.mark.parametrize("most", [5, None])
def test_messages_come_out_as_they_went_in(most: int | None) -> None:
    inbox = Inbox(most)
    messages = [inbox.take(a_message(2.0 * k)) for k in range(3)]
    for name, kind in (("dx", torch.float32), ("a", torch.float32), ("counters", torch.int64)):
        matrix = stacked([message[name] for message in messages])
        assert matrix.dtype == kind
        assert matrix[:, 0].tolist() == [0, 2, 4]
        assert len(matrix) == 3


def test_rows_of_one_matrix_are_not_copied() -> None:
    inbox = Inbox(5)
    messages = [inbox.take(a_message(k)) for k in range(3)]
    matrix = stacked([message["dx"] for message in messages])
    assert matrix.data_ptr() == inbox.matrices["dx"].data_ptr()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.booleans(), st.integers(0, 4))
def test_stacking_is_concatenation(positions: list[int], across: bool, width: int) -> None:
    if across:
        matrix = torch.arange(6 * 2 * width).view(2 * width, 6).T
    else:
        matrix = torch.arange(6 * width).view(6, width)
    rows = [matrix[position : position + 1] for position in positions]
    assert torch.equal(stacked(rows), torch.cat(rows))


def test_rows_of_different_matrices_are_told_apart() -> None:
    numbers = torch.arange(12.0)
    first = numbers[:4].view(1, 4)
    second = numbers[4:8].view(2, 2)
    with pytest.raises(RuntimeError, match="izes of tensors must match"):
        stacked([first, second])
    assert stacked([torch.zeros(1, 2), torch.ones(1, 2)]).tolist() == [[0, 0], [1, 1]]
