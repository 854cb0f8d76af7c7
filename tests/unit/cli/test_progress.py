from __future__ import annotations

import io
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import tacit
from tacit.cli.live_table import LiveTable
from tacit.cli.progress import Lines
from tacit.cli.silence import Silence
from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted, Warned
from tacit.records.tally import Tally
from tacit.report.notebook import Notebook, in_notebook

GRID = {f"{row}{seed}": (row, "iid") for row in ("fedavg", "fedprox") for seed in (0, 1)}


class Clock:
    """A time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def started(
    grid: dict[str, tuple[str, str]] = GRID, rounds: int = 2, done: int = 0
) -> StudyStarted:
    return StudyStarted("nowhere", len(grid), rounds * len(grid), done, grid)


def played(run: str, round: int, score: float | None, status: str = "running") -> RoundFinished:
    return RoundFinished(run, round, {"accuracy": score, "status": status})


def test_the_tally_counts_runs_and_rounds_and_tells_the_time_left() -> None:
    clock = Clock()
    tally = Tally(clock)
    tally.add(started(rounds=5))
    clock.now = 100.0  # what comes before the first round says nothing of the others
    tally.add(played("fedavg0", 1, 0.5))
    for turn in range(2, 6):
        assert "left" not in tally.text()
        clock.now += 2.0
        tally.add(played("fedavg0", turn, 0.9142, "finished" if turn == 5 else "running"))
    assert tally.text() == "1 of 4 runs, 5 of 20 rounds, about 30 s left; latest fedavg, iid 0.9142"
    tally.add(RunFinished("fedprox0", 0, "diverged", 5))
    assert tally.text().startswith("2 of 4 runs, 10 of 20 rounds, about 9 s left")


def test_a_cell_is_the_mean_over_the_seeds_so_far() -> None:
    tally = Tally(Clock())
    tally.add(started())
    assert tally.cell("fedavg", "iid") == (None, "waiting", 2)
    tally.add(played("fedavg0", 2, 0.5, "finished"))
    assert tally.cell("fedavg", "iid") == (0.5, "going", 2)
    tally.add(played("fedavg1", 2, 0.7, "finished"))
    assert tally.cell("fedavg", "iid") == (0.6, "finished", 2)
    tally.add(played("fedprox1", 1, None, "diverged"))
    assert tally.cell("fedprox", "iid").state == "diverged"


def test_the_score_of_a_regression_is_shown_too() -> None:
    tally = Tally(Clock())
    tally.add(replace(started(), metric="r2"))
    tally.add(RoundFinished("fedavg0", 1, {"r2": 0.25, "status": "running"}))
    assert tally.cell("fedavg", "iid").mean == 0.25


def test_a_resumed_study_shows_what_was_done_before(tmp_path: Path) -> None:
    tacit.run(
        {"dataset": "iris", "model": "linear", "rounds": 2, "algorithm": ["fedavg", "local"]},
        tmp_path / "out",
    )
    tally = Tally()
    tacit.resume(tmp_path / "out", on_event=tally.add)
    assert tally.counts == "2 of 2 runs, 4 of 4 rounds"
    assert tally.cell("local", "iid").state == "finished"


def test_lines_come_after_two_seconds_then_every_ten_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    lines = Lines(clock)
    lines.on_event(started({"a": ("fedavg", "iid")}, rounds=30))
    for round in range(1, 31):
        clock.now = float(round)
        lines.on_event(played("a", round, 0.5, "finished" if round == 30 else "running"))
    lines.on_event(RunFinished("a", 30, "finished", 0))
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" rounds")[0] for line in said] == [
        "0 of 1 runs, 2 of 30",
        "0 of 1 runs, 12 of 30",
        "0 of 1 runs, 22 of 30",
        "1 of 1 runs, 30 of 30",
    ]
    assert said[-1].endswith("in 30 s; latest fedavg, iid 0.5000")


def test_a_short_study_says_nothing_and_quiet_never_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for display in (Lines(Clock()), Silence(Clock())):
        events: list[Event] = [
            started({"a": ("fedavg", "iid")}, 1),
            played("a", 1, 0.5, "finished"),
        ]
        for event in [*events, RunFinished("a", 1, "finished", 0)]:
            display.on_event(event)
    Silence().on_event(Warned("careful"))
    assert capsys.readouterr().err == ""


def draw(live: LiveTable, *events: Event) -> str:
    for event in events:
        live.on_event(event)
    live.console.print(live)
    assert isinstance(live.console.file, io.StringIO)
    return live.console.file.getvalue()


def terminal(height: int = 24) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=100,
        height=height,
        color_system="standard",
        no_color=False,
    )


def test_the_live_comparison_fills() -> None:
    ends = [
        played(run, 2, score, "finished")
        for run, score in zip(GRID, (0.5, 0.7, 0.9, 0.7), strict=True)
    ]
    drawn = draw(LiveTable(Clock(), terminal()), started(), *ends[:3])
    assert "3 of 4 runs, 3 of 8 rounds" in drawn
    assert "\x1b[2m0.9000" in drawn  # dim: one seed of two
    assert "0.6000" in drawn
    drawn = draw(LiveTable(Clock(), terminal()), started(), *ends)
    assert "\x1b[1m0.8000" in drawn  # bold: the best of the column
    drawn = draw(LiveTable(Clock(), terminal()), started(), played("fedavg0", 1, None, "diverged"))
    assert "\x1b[31mdiverged" in drawn
    assert "\x1b[2m       -" in drawn  # not yet started


def test_one_seed_is_never_marked_as_best() -> None:
    grid = {"a": ("fedavg", "iid"), "b": ("fedprox", "iid")}
    drawn = draw(LiveTable(Clock(), terminal()), started(grid), played("a", 2, 0.5, "finished"))
    assert "\x1b[1m0.5000" not in drawn
    assert "0.5000" in drawn


def test_no_more_rows_than_the_window_has_lines() -> None:
    grid = {str(k): (f"method{k}", "iid") for k in range(12)}
    drawn = draw(LiveTable(Clock(), terminal(height=10)), started(grid))
    assert "... and 7 more" in drawn
    assert drawn.count("\n") <= 10


def test_a_notebook_gets_one_display_updated_in_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages: list[str] = []

    class Handle:
        def update(self, page: str) -> None:
            pages.append(page)

    def display(page: str, display_id: bool) -> Handle:
        assert display_id
        assert not pages
        pages.append(page)
        return Handle()

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display, ipython.display.HTML = display, str
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    assert in_notebook()
    tacit.run({"dataset": "iris", "model": "linear", "rounds": 2}, tmp_path / "out")
    assert len(pages) > 1
    assert '<progress value="2" max="2"' in pages[-1]
    assert "1 of 1 runs, 2 of 2 rounds" in pages[-1]
    with pytest.warns(UserWarning, match="careful"):
        Notebook().on_event(Warned("careful"))


def test_the_end_is_told_once_however_many_runs_end_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    lines = Lines(lambda: now[0])
    grid = {f"r{k}": (f"m{k}", "iid") for k in range(3)}
    lines.on_event(StudyStarted("somewhere", 3, 3, 0, grid))
    now[0] = 5.0
    for run in grid:
        lines.on_event(RoundFinished(run, 1, {"accuracy": 0.5, "status": "finished"}))
    for run in grid:
        lines.on_event(RunFinished(run, 1, "finished", 0))
    told = capsys.readouterr().err.splitlines()
    assert sum("3 of 3 runs" in line for line in told) == 1
