"""Blocks are saved as often as it pays, and their errors are the same in another process."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from playground import FAST

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.execution import play
from tacit.execution.play import BlockTask, Failed, play_block
from tacit.records.messages import BlockSaved, RoundPlayed
from tacit.study.source_keys import source_key
from tacit.study.study import Study


def travelled(error: Exception) -> Exception:
    """The error after its way through a pipe."""
    failed: Failed = pickle.loads(pickle.dumps(Failed.of(error)))
    return failed.error()


@pytest.mark.parametrize("kind", [StudyError, DataError])
def test_an_error_keeps_its_class_text_and_parameters(kind: type[TacitError]) -> None:
    error = travelled(kind("no folder", parameters=("data", "workers")))
    assert type(error) is kind
    assert str(error) == "no folder"
    assert isinstance(error, TacitError)
    assert error.parameters == ("data", "workers")


def test_a_bug_brings_its_traceback() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as bug:
        error = travelled(bug)
    assert type(error) is RuntimeError
    assert str(error).startswith("in a worker:\nTraceback")
    assert "ValueError: a bug" in str(error)


def rounds_between_checkpoints(
    monkeypatch: pytest.MonkeyPatch, *, every: float, saving: float, rounds: int
) -> list[int]:
    """How many rounds of one second are played until each checkpoint, which takes `saving`.

    The clock moves when a message is taken, as it would where the taker writes it to a disk.
    """
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(play, "time", SimpleNamespace(monotonic=lambda: clock.now))
    run = Study(**{**FAST, "rounds": rounds}).runs()[0]
    task = BlockTask(0, (("000-run", run),), "key", at_once=None, every=every)
    datasets = {source_key(run.dataset): run.dataset.load()}
    gaps = [0]
    for message in play_block(task, datasets):
        if isinstance(message, RoundPlayed):
            clock.now += 1
            gaps[-1] += 1
        elif isinstance(message, BlockSaved):
            clock.now += saving
            gaps.append(0)
    return gaps[:-1]


def test_a_checkpoint_is_due_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = rounds_between_checkpoints(monkeypatch, every=3.5, saving=0.1, rounds=18)
    assert gaps == [4, 4, 4, 4]


def test_checkpoints_that_take_long_are_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a study spends at most a tenth of its time on them."""
    gaps = rounds_between_checkpoints(monkeypatch, every=3.5, saving=2, rounds=50)
    first, *later = gaps
    assert first == 4  # nobody knows yet how long it will take
    assert later == [21, 21]  # the first round that ends after more than 10 times 2 seconds
