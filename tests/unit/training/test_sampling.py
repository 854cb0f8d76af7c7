"""Every way to draw batches, and what each of them promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.errors import StudyError
from tacit.training.batches import epoch_batches, pack_batches
from tacit.training.sampling import Epochs, FunctionSampling, Poisson, Sampling

SAMPLINGS: list[Sampling] = [
    Epochs(),
    Epochs(drop_last=True),
    Poisson(),
    FunctionSampling("own_batches:backwards"),
]
sizes = st.one_of(st.none(), st.integers(1, 50))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.name)
@given(count=st.integers(0, 40), epochs=st.integers(1, 3), size=sizes, seed=st.integers(0, 99))
def test_packed_batches_are_the_listed_ones(
    sampling: Sampling, count: int, epochs: int, size: int | None, seed: int
) -> None:
    shard = torch.arange(count) * 2 + 5
    batches = sampling.batches(shard, epochs, size, seeded(seed))
    packed = sampling.packed(shard, epochs, size, seeded(seed))
    assert len(packed) == len(batches)
    for batch, row, length in zip(batches, packed.index, packed.counts.tolist(), strict=True):
        assert torch.equal(row[:length], batch)


@given(count=st.integers(0, 40), epochs=st.integers(1, 3), size=sizes, seed=st.integers(0, 99))
def test_epochs_are_the_shuffled_passes_that_they_always_were(
    count: int, epochs: int, size: int | None, seed: int
) -> None:
    shard = torch.arange(count)
    ours = Epochs().batches(shard, epochs, size, seeded(seed))
    theirs = epoch_batches(shard, epochs, size, seeded(seed))
    assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]


@given(count=st.integers(0, 40), epochs=st.integers(1, 3), size=sizes, seed=st.integers(0, 99))
def test_a_last_batch_that_is_smaller_can_be_left_out(
    count: int, epochs: int, size: int | None, seed: int
) -> None:
    """What is left of every pass are its first batches, or the only one."""
    shard = torch.arange(count)
    kept = Epochs(drop_last=True).batches(shard, epochs, size, seeded(seed))
    everything = Epochs().batches(shard, epochs, size, seeded(seed))
    full = [batch.tolist() for batch in everything if len(batch) == size]
    is_one_batch = size is None or count < size
    expected = [batch.tolist() for batch in everything] if is_one_batch else full
    assert [batch.tolist() for batch in kept] == expected


@pytest.mark.parametrize("sampling", SAMPLINGS[:3], ids=str)
@given(count=st.integers(1, 60), epochs=st.integers(1, 3), size=st.integers(1, 60))
def test_the_steps_that_are_expected_are_those_that_are_drawn(
    sampling: Sampling, count: int, epochs: int, size: int
) -> None:
    used = sampling.used(count, size)
    batches = sampling.batches(torch.arange(count), epochs, size, seeded(0))
    assert len(batches) == epochs * math.ceil(used / size)
    if isinstance(sampling, Epochs):
        assert sum(map(len, batches)) == epochs * used


@given(
    count=st.integers(1, 60),
    epochs=st.integers(1, 3),
    size=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_poisson_batches_are_subsets_as_many_as_an_epochs_batches(
    count: int, epochs: int, size: int, seed: int
) -> None:
    shard = torch.arange(count) + 7
    batches = Poisson().batches(shard, epochs, size, seeded(seed))
    assert len(batches) == epochs * math.ceil(count / size)
    for batch in batches:
        assert len(batch.unique()) == len(batch)
        assert torch.isin(batch, shard).all()


def test_each_sample_joins_each_poisson_batch_by_itself_with_the_same_probability() -> None:
    count, size, epochs = 50, 10, 2000
    batches = Poisson().batches(torch.arange(count), epochs, size, seeded(0))
    steps = len(batches)
    joined = torch.zeros(steps, count)
    for step, batch in enumerate(batches):
        joined[step, batch] = 1
    deviation = math.sqrt(0.2 * 0.8 / steps)
    assert (joined.mean(0) - 0.2).abs().max() < 5 * deviation
    lengths = joined.sum(1)
    assert lengths.mean().item() == pytest.approx(size, abs=0.15)
    binomial_variance = count * 0.2 * 0.8
    assert lengths.var().item() == pytest.approx(binomial_variance, rel=0.1)
    together = torch.corrcoef(joined.T) - torch.eye(count)
    assert together.abs().max() < 5 / math.sqrt(steps)


def test_a_poisson_batch_may_be_empty() -> None:
    batches = Poisson().batches(torch.arange(3), 100, 1, seeded(0))
    assert any(not len(batch) for batch in batches)


@pytest.mark.parametrize("size", [None, 4, 9])
def test_without_a_smaller_batch_size_every_sample_joins_every_poisson_step(
    size: int | None,
) -> None:
    batches = Poisson().batches(torch.arange(4), 3, size, seeded(0))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize("sampling", [Epochs(), Poisson()], ids=lambda sampling: sampling.name)
def test_a_client_without_samples_has_no_steps(sampling: Sampling) -> None:
    assert len(sampling.batches(torch.arange(0), 3, 4, seeded(0))) == 0


def test_ones_own_function_draws_the_batches() -> None:
    sampling = FunctionSampling("own_batches:backwards")
    batches = sampling.batches(torch.tensor([4, 6, 8]), 2, 2, seeded(0))
    assert [batch.tolist() for batch in batches] == [[8, 6], [4], [8, 6], [4], []]


NO_FUNCTION = r"expected a function of \(shard, epochs, batch_size, generator\)"
NO_INDEX = "batch 0: expected a tensor of whole numbers in one dimension"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NO_FUNCTION", f"own_batches:NO_FUNCTION: {NO_FUNCTION}"),
        ("of_two", f"own_batches:of_two: {NO_FUNCTION}"),
        ("a_number", "expected a sequence of index tensors, got 3"),
        ("a_list_of_lists", rf"{NO_INDEX}, got \[1\]"),
        ("floats", rf"{NO_INDEX}, got float32 of shape \(3,\)"),
        ("strangers", "batch 1: names samples that are not in the shard; take them from it"),
    ],
)
def test_a_function_that_returns_something_else_is_told_what_is_wanted(
    name: str, message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        FunctionSampling(f"own_batches:{name}").batches(torch.arange(3), 1, None, seeded(0))


def test_a_function_that_shuffles_in_place_changes_nobody_s_samples() -> None:
    shard = torch.tensor([4, 6, 8])
    batches = FunctionSampling("own_batches:in_place").batches(shard, 1, None, seeded(0))
    assert [batch.tolist() for batch in batches] == [[8, 4]]
    assert shard.tolist() == [4, 6, 8]


def test_empty_batches_can_be_packed() -> None:
    packed = pack_batches([torch.arange(0)] * 3)
    assert packed.counts.tolist() == [0, 0, 0]
    assert packed.index.shape[0] == 3
