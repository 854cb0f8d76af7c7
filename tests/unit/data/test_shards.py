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
def test_packed_shards_are_the_lists_they_were_made_of(lists: list[list[int]], offset: int) -> None:
    shards = Shards.of([np.array(indices, dtype=np.int64) for indices in lists])
    moved = shards.on(CPU, offset)
    assert len(shards) == len(moved) == len(lists)
    assert [shard.tolist() for shard in shards] == lists
    for shard, indices in zip(moved, lists, strict=True):
        assert shard.tolist() == [index + offset for index in indices]
    assert shards.samples == sum(map(len, lists))
    assert [shard.tolist() for shard in shards[1:3]] == lists[1:3]
    assert shards[-1].tolist() == lists[-1]
    with pytest.raises(IndexError):
        shards[len(lists)]


def test_other_samples_replace_a_clients_own_and_nobody_elses() -> None:
    shards = Shards.of([np.array([1, 2]), np.array([3]), np.array([4, 5])])
    replaced = shards.on(CPU).replaced({2: torch.tensor([8, 9])})
    assert [shard.tolist() for shard in replaced] == [[1, 2], [3], [8, 9]]
    assert [shard.tolist() for shard in shards] == [[1, 2], [3], [4, 5]]
