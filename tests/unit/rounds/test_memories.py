"""Clients' memories in a file: the same bits as in memory, whatever is stopped when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playground import FAST, StopAfter, assert_same, simulate, tiny_dataset

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.core.rows import Rows
from tacit.records import checkpoint
from tacit.rounds import memories
from tacit.rounds.memories import FileStorage, StoredMemories
from tacit.rounds.slot_file import Entry, SlotFile
from tacit.simulation.kinds.horizontal import Simulation
from tacit.simulation.state import RunState
from tacit.study.study import Study

CROWD: dict[str, Any] = {
    **FAST,
    "algorithm": "scaffold",
    "wire": ["top_k"],
    "clients": 12,
    "selection": {"name": "fraction", "c": 0.34},
    "dropout": 0.2,
    "rounds": 40,
}
CPU = torch.device("cpu")


@pytest.fixture
def tiny_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "IN_MEMORY", 0)


def an_engine(folder: Path | None) -> Simulation:
    run = Study("small", **CROWD).runs()[0]
    return Simulation([("one", run)], tiny_dataset(120), folder=folder)


def restore(engine: Simulation, saved: list[dict[str, Any]]) -> None:
    engine.states[0].restore(saved[0])


def assert_equal_states(state: RunState, expected: RunState) -> None:
    for name in ("server", "method_memory", "wire_memory"):
        actual_rows = dict(getattr(state, name))
        expected_rows = dict(getattr(expected, name))
        torch.testing.assert_close(actual_rows, expected_rows, rtol=0, atol=0)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"algorithm": "fedavg"},
        {"algorithm": {"name": "own_code:Memorious"}, "wire": []},
        {"algorithm": "local", "wire": []},
        {"algorithm": "fedplus", "fine_tuning": 1},
        {"attackers": {"count": 2, "kind": "sign_flip"}, "missing": "zero"},
    ],
    ids=str,
)
def test_memories_in_a_file_give_the_same_bits(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = {**CROWD, "rounds": 8, **changed}
    held = simulate(tiny_dataset(120), **study)
    monkeypatch.setattr(memories, "IN_MEMORY", 0)
    filed = simulate(tiny_dataset(120), **study)
    assert not held.states[0].stores
    assert filed.states[0].stores
    assert held.records == filed.records  # type: ignore[attr-defined]
    assert_equal_states(held.states[0], filed.states[0])


def test_a_method_without_memory_keeps_no_file(tmp_path: Path, tiny_limit: None) -> None:
    run = Study("small", **{**CROWD, "algorithm": "fedavg", "wire": ["quantise"]}).runs()[0]
    engine = Simulation([("one", run)], tiny_dataset(120), folder=tmp_path / "memories")
    list(engine.play_round())
    assert not engine.states[0].stores
    assert not (tmp_path / "memories").exists()


def test_small_memories_stay_in_memory_and_large_ones_do_not() -> None:
    rows = {"c": torch.zeros(1, 4810)}
    assert not FileStorage(100, None, CPU).is_needed(rows)
    assert FileStorage(10_000, None, CPU).is_needed(rows)
    tiny_rows = {"c": torch.zeros(1, 1)}
    assert FileStorage(100_000, None, CPU).is_needed(tiny_rows)  # so many entries are a burden


ACTIONS = st.sampled_from(["play", "play", "write", "save", "know", "crash"])
SLOW = [HealthCheck.function_scoped_fixture]


@given(actions=st.lists(ACTIONS, max_size=25))
@settings(deadline=None, max_examples=60, suppress_health_check=SLOW)
def test_whatever_is_stopped_when_the_next_rounds_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], tiny_limit: None
) -> None:
    """Write: a checkpoint reaches the disk. Save: it was made and lost.

    Know: the engine hears that the latest one is written.
    """
    folder = tmp_path_factory.mktemp("crash")
    file = folder / "study.pt"
    latest = ""
    engine = an_engine(folder / "memories")
    for action in actions:
        if action == "play":
            list(engine.play_round())
        elif action == "write":
            checkpoint.save(file, {"states": engine.saved()})
        elif action == "save":
            engine.saved()
        elif action == "know" and latest == "write":
            engine.checkpointed()
        elif action == "crash":
            engine = an_engine(folder / "memories")
            if file.exists():
                restore(engine, checkpoint.load(file)["states"])
        if action in ("write", "save", "crash"):
            latest = action
    unstopped = an_engine(None)
    while unstopped.states[0].round < engine.states[0].round:
        list(unstopped.play_round())
    assert_equal_states(engine.states[0], unstopped.states[0])


@pytest.mark.parametrize("durable", [True, False])
def test_slots_are_used_again(tmp_path: Path, tiny_limit: None, durable: bool) -> None:
    engine = an_engine(tmp_path / "memories" if durable else None)
    sizes = []
    for _ in range(40):
        list(engine.play_round())
        if durable:
            engine.saved()
            engine.checkpointed()
        sizes.append([store.file.count for store in engine.states[0].stores])
    assert sizes[-1] == sizes[-15]
    assert max(sizes[-1]) <= 12 + 2 * 4  # every client's, and the last two rounds'


def test_without_a_checkpoint_nothing_that_the_last_one_needs_is_written_over(
    tmp_path: Path, tiny_limit: None
) -> None:
    engine = an_engine(tmp_path / "memories")
    for _ in range(3):
        list(engine.play_round())
    saved = engine.saved()
    held = dict(engine.states[0].method_memory)
    for _ in range(10):
        list(engine.play_round())
    again = an_engine(tmp_path / "memories")
    restore(again, saved)
    torch.testing.assert_close(dict(again.states[0].method_memory), held, rtol=0, atol=0)


@pytest.mark.parametrize("late", [0, 1, 3])
def test_news_of_a_checkpoint_may_come_late(tmp_path: Path, tiny_limit: None, late: int) -> None:
    """Slots that the written checkpoint needs are kept, though the run has gone on since then."""
    engine = an_engine(tmp_path / "memories")
    for _ in range(4):
        list(engine.play_round())
    saved = engine.saved()
    held = dict(engine.states[0].method_memory)
    for _ in range(late):
        list(engine.play_round())
    engine.checkpointed()
    for _ in range(6):
        list(engine.play_round())
    again = an_engine(tmp_path / "memories")
    restore(again, saved)
    store = again.states[0].stores[0]
    torch.testing.assert_close(dict(store), held, rtol=0, atol=0)
    size = store.file.count
    list(again.play_round())
    assert store.file.count == size  # what the lost rounds wrote is free


def test_a_checkpoint_holds_a_map_and_no_rows(tmp_path: Path, tiny_limit: None) -> None:
    engine = an_engine(tmp_path / "memories")
    list(engine.play_round())
    saved = engine.saved()[0]
    assert set(saved["memory"]) == {"slots", "shapes"}
    assert len(saved["memory"]["slots"]) == 12


def test_a_portable_state_travels_without_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "IN_MEMORY", 0)
    engine = an_engine(tmp_path / "here")
    for _ in range(3):
        list(engine.play_round())
    checkpoint.save(tmp_path / "portable.pt", {"states": engine.saved(portable=True)})
    saved = checkpoint.load(tmp_path / "portable.pt")["states"]
    engine.discard()
    assert not list((tmp_path / "here").iterdir())
    unstopped = simulate(tiny_dataset(120), **{**CROWD, "rounds": 5})
    for limit, folder in ((0, tmp_path / "there"), (0, None), (2**40, None)):
        monkeypatch.setattr(memories, "IN_MEMORY", limit)
        resumed = an_engine(folder)
        restore(resumed, saved)
        for _ in range(2):
            list(resumed.play_round())
        assert_equal_states(resumed.states[0], unstopped.states[0])
        assert bool(resumed.states[0].stores) == (limit == 0)


def test_lost_files_are_named(tmp_path: Path, tiny_limit: None) -> None:
    engine = an_engine(tmp_path / "memories")
    list(engine.play_round())
    saved = engine.saved()
    with pytest.raises(DataError, match="resume it there"):
        restore(an_engine(None), saved)
    message = r"one-memory\.bin has lost clients' memories since the checkpoint"
    with pytest.raises(DataError, match=message):
        restore(an_engine(tmp_path / "elsewhere"), saved)
    path = tmp_path / "memories" / "one-memory.bin"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=message):
        restore(an_engine(tmp_path / "memories"), saved)


@pytest.mark.parametrize("rounds", [1, 5, 9])
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_stopped_study_with_filed_memories_resumes_to_the_same_bits(
    tmp_path: Path, rounds: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", seconds)
    study = Study("crowd", **{**CROWD, "dataset": "digits", "rounds": 10, "fine_tuning": 1})
    tacit.run(study, tmp_path / "held")
    monkeypatch.setattr(memories, "IN_MEMORY", 0)
    with pytest.raises(KeyboardInterrupt):
        tacit.run(study, tmp_path / "stopped", on_event=StopAfter(rounds))
    assert list((tmp_path / "stopped" / "memories").iterdir())
    tacit.resume(tmp_path / "stopped")
    assert_same(tmp_path / "stopped", tmp_path / "held")
    assert not (tmp_path / "stopped" / "memories").exists()  # nobody needs them any more


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int16, torch.bool]


ENTRIES = st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(1, 9)), min_size=1, max_size=4)


@given(ENTRIES, st.integers(0, 9))
@settings(deadline=None)
def test_every_type_comes_back_as_it_was(entries: list[tuple[torch.dtype, int]], seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)

    def a_memory() -> Rows:
        rows = {}
        for number, (dtype, width) in enumerate(entries):
            rows[str(number)] = (9 * torch.rand(1, width, generator=draw)).to(dtype)
        return rows

    written = [a_memory() for _ in range(3)]
    file = SlotFile(Entry.all_of(written[0]), None)
    assert [file.write(rows) for rows in written] == [0, 1, 2]
    for slot, rows in enumerate(written):
        read = file.read(slot)
        for name, value in rows.items():
            assert read[name].dtype == value.dtype
            assert torch.equal(read[name], value)


def test_what_is_stored_is_a_mapping_that_does_not_change() -> None:
    def rows(value: float) -> Rows:
        return {"c": torch.full((1, 3), value)}

    empty = StoredMemories.new(rows(0), FileStorage(5, None, CPU))
    first = empty.updated({1: rows(1), 3: rows(3)})
    second = first.updated({3: rows(30), 4: rows(4)})
    assert list(first) == [1, 3]
    assert list(second) == [1, 3, 4]
    assert len(second) == 3
    assert [first[3]["c"][0, 0], second[3]["c"][0, 0]] == [3, 30]
    assert np.int64(3) in second
    assert 0 not in second
    assert 99 not in second
    assert second.get(0) is None
    with pytest.raises(KeyError):
        second[0]
    with pytest.raises(StudyError, match="must keep its entries and their shapes"):
        second.updated({0: {"c": torch.zeros(1, 4)}})


def test_the_order_of_a_memorys_entries_does_not_matter() -> None:
    example = {"b": torch.ones(1, 1), "a": torch.zeros(1, 2)}
    memory = {"a": torch.full((1, 2), 5.0), "b": torch.full((1, 1), 7.0)}
    store = StoredMemories.new(example, FileStorage(3, None, CPU)).updated({1: memory})
    torch.testing.assert_close(store[1], memory, rtol=0, atol=0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_named() -> None:
    store = StoredMemories.new({"c": torch.ones(1, 4)}, FileStorage(3, Path("/dev/full"), CPU))
    with pytest.raises(OSError, match="No space left") as caught:
        store.updated({0: {"c": torch.ones(1, 4)}})
    assert caught.value.filename == "/dev/full"
