"""How far a study has come, from its events."""

from __future__ import annotations

from pathlib import Path

from tacit.core.events import RoundFinished, StudyStarted
from tacit.records.tally import Tally


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_resumed_study_has_no_rate_before_its_first_round(tmp_path: Path) -> None:
    clock = Clock()
    tally = Tally(clock)
    tally.add(StudyStarted(str(tmp_path), 1, 100, 50, {"a": ("fedavg", "iid")}))
    clock.seconds = 10.0
    assert tally.rate == 0
    assert tally.left is None
    for round in range(51, 56):
        clock.seconds += 2
        tally.add(RoundFinished("a", round, {"accuracy": 0.5}))
    assert tally.rate == 0.5
    assert tally.left == 90
