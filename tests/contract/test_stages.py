"""Every registered stage of the wire keeps the contract, whoever wrote it."""

from __future__ import annotations

import copy

import pytest
import torch
from members import members

from tacit.core.rows import Rows, join, pick
from tacit.federated.wire.stage import Load, Stage, rows_of

STAGES = members(Stage)
ALONE = [stage for stage in STAGES if not stage.summed]  # single messages mean something
SIZE = 900
SEEDS = [5, 6, 7]


@pytest.fixture(params=STAGES, ids=str)
def stage(request: pytest.FixtureRequest) -> Stage:
    stage: Stage = request.param
    return stage


def a_message(round: int = 0, dtype: torch.dtype = torch.float32) -> Rows:
    """Of three clients: two entries that a stage may change, a column, and a model's buffers."""
    draw = torch.Generator().manual_seed(round)
    return {
        "dx": torch.randn(3, SIZE, generator=draw, dtype=dtype),
        "dc": 1e-3 * torch.randn(3, SIZE, generator=draw, dtype=dtype),
        "steps": torch.tensor([[3.3], [4.4], [5.5]], dtype=dtype),
        "buffers": torch.randn(3, 7, generator=draw, dtype=dtype),
        "counters": torch.tensor([[1, 2], [3, 4], [5, 6]]),
    }


def shapes(rows: Rows) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in rows.items()}


def assert_equal(rows: Rows, others: Rows) -> None:
    torch.testing.assert_close(rows, others, rtol=0, atol=0, equal_nan=True)


def test_rows_together_equal_each_row_alone_to_the_bit(stage: Stage) -> None:
    memory = stage.init(a_message())
    memories = [stage.init(pick(a_message(), slice(k, k + 1))) for k in range(3)]
    for round in range(3):
        message = a_message(round)
        sent, memory = stage.client(message, memory, SEEDS)
        alone = []
        for k in range(3):
            row = pick(message, slice(k, k + 1))
            row_sent, memories[k] = stage.client(row, memories[k], SEEDS[k : k + 1])
            alone.append(row_sent)
        assert_equal(sent, join(alone))
        assert_equal(memory, join(memories))


def test_both_sides_leave_their_inputs_untouched(stage: Stage) -> None:
    message = a_message()
    _, memory = stage.client(message, stage.init(message), SEEDS)
    before = copy.deepcopy((message, memory))
    sent, _ = stage.client(message, memory, SEEDS)
    stage.owed(memory)
    assert_equal(message, before[0])
    assert_equal(memory, before[1])
    travelling = copy.deepcopy(sent)
    stage.server(sent)
    assert_equal(sent, travelling)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_arrives_has_the_form_of_what_was_put_in(stage: Stage, dtype: torch.dtype) -> None:
    message = a_message(dtype=dtype)
    sent, _ = stage.client(message, stage.init(message), SEEDS)
    assert shapes(stage.server(sent)) == shapes(message)


def test_columns_and_buffers_pass_as_they_are(stage: Stage) -> None:
    message = a_message()
    sent, memory = stage.client(message, stage.init(message), SEEDS)
    arrived = stage.server(sent)
    untouched = ("steps", "buffers", "counters")
    for name in untouched:
        torch.testing.assert_close(arrived[name], message[name], rtol=0, atol=0)
    assert not set(stage.owed(memory)) & set(untouched)


def test_the_same_seeds_give_the_same_message(stage: Stage) -> None:
    message = a_message()
    first, first_memory = stage.client(message, stage.init(message), SEEDS)
    second, second_memory = stage.client(message, stage.init(message), SEEDS)
    assert_equal(first, second)
    assert_equal(first_memory, second_memory)


def test_a_memory_keeps_its_entries_from_the_first_message_on(stage: Stage) -> None:
    """Checkpoints and clients that wait for their turn rely on it."""
    memory = stage.init(a_message())
    form = shapes(memory)
    for round in range(3):
        _, memory = stage.client(a_message(round), memory, SEEDS)
        assert shapes(memory) == form


@pytest.mark.parametrize("stage", ALONE, ids=str)
@pytest.mark.parametrize("damage", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_damaged_row_leaves_the_others_alone_and_recovers(stage: Stage, damage: float) -> None:
    message = a_message()
    healthy = [0, 2]
    damaged = {**message, "dx": message["dx"].clone()}
    damaged["dx"][1, :3] = damage
    clean, clean_memory = stage.client(message, stage.init(message), SEEDS)
    sent, memory = stage.client(damaged, stage.init(message), SEEDS)
    assert_equal(pick(sent, healthy), pick(clean, healthy))
    assert_equal(pick(memory, healthy), pick(clean_memory, healthy))
    sent, memory = stage.client(a_message(1), memory, SEEDS)
    for rows in (stage.server(sent), stage.owed(memory), memory):
        for name, value in rows.items():
            assert value.isfinite().all(), name


@pytest.mark.parametrize("stage", ALONE, ids=str)
def test_nothing_stays_nothing_where_nothing_is_remembered(stage: Stage) -> None:
    message = {name: torch.zeros_like(value) for name, value in a_message().items()}
    memory = stage.init(message)
    assert all(not value.any() for value in stage.owed(memory).values())
    sent, memory = stage.client(message, memory, SEEDS)
    arrived = stage.server(sent)
    assert_equal(arrived, message)
    assert all(not value.any() for value in stage.owed(memory).values())


@pytest.mark.parametrize("stage", ALONE, ids=str)
def test_what_arrives_and_what_is_owed_are_what_was_put_in(stage: Stage) -> None:
    """Of entries that the stage owes, over some rounds, nothing is lost and nothing comes twice."""
    memory = stage.init(a_message())
    owed_at_first = stage.owed(memory)
    put_in = dict(owed_at_first)
    arrived = {name: torch.zeros_like(value) for name, value in owed_at_first.items()}
    for round in range(4):
        message = a_message(round)
        sent, memory = stage.client(message, memory, SEEDS)
        reply = stage.server(sent)
        owed = stage.owed(memory)
        assert owed.keys() == owed_at_first.keys() <= rows_of(message).keys()
        for name in owed:
            put_in[name] = put_in[name] + message[name]
            arrived[name] = arrived[name] + reply[name]
            in_all = arrived[name] + owed[name]
            torch.testing.assert_close(in_all, put_in[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stage", ALONE, ids=str)
def test_no_more_numbers_arrive_than_are_said_to_travel(stage: Stage) -> None:
    sent, _ = stage.client(a_message(), stage.init(a_message()), SEEDS)
    load = stage.load(Load(SIZE, 32), SIZE)
    for name, value in rows_of(stage.server(sent)).items():
        assert int((value != 0).sum(1).max()) <= load.values <= SIZE, name


@pytest.mark.parametrize("name", list(Stage.known()))
def test_a_message_weighs_no_more_than_it_did_and_a_longer_one_no_less(name: str) -> None:
    """By default; 100 % of the numbers, each with its position, would cost the positions too."""
    stage = Stage.build(name)
    weights = []
    for size in (2, 3, 10, 511, 512, 513, 1000, 100_000):
        plain = Load(size, 32)
        load = stage.load(plain, size)
        assert load.bytes > 0
        assert stage.summed or load.bytes <= plain.bytes
        weights.append(load.bytes)
    assert weights == sorted(weights)
