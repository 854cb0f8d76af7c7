from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.shards import Shards

CPU = torch.device("cpu")


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=5), min_size=1, max_size=8), st.integers(0, 9)
)
def test_packed_shards_are_the_parts_they_were_made_of(parts: list[list[int]], offset: int) -> None:
    shards = Shards.of([np.array(part, dtype=np.int64) for part in parts])
    moved = shards.on(CPU, offset)
    assert len(shards) == len(moved) == len(parts)
    assert [one.tolist() for one in shards] == parts
    assert [one.tolist() for one in moved] == [[k + offset for k in part] for part in parts]
    assert shards.samples == sum(map(len, parts))
    assert [one.tolist() for one in shards[1:3]] == parts[1:3]
    assert shards[-1].tolist() == parts[-1]
    with pytest.raises(IndexError):
        shards[len(parts)]


def test_other_samples_replace_a_clients_own_and_nobody_elses() -> None:
    shards = Shards.of([np.array([1, 2]), np.array([3]), np.array([4, 5])])
    other = shards.on(CPU).replaced({2: torch.tensor([8, 9])})
    assert [part.tolist() for part in other] == [[1, 2], [3], [8, 9]]
    assert [part.tolist() for part in shards] == [[1, 2], [3], [4, 5]]
