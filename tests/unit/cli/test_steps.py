from __future__ import annotations

import io
import sys

import pytest
from rich import console

from tacit.cli.steps import Steps
from tacit.core.events import Advanced, Noted, StudyStarted, Warned


class Clock:
    """A time that passes when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("start", [0.0, 1e6])
def test_a_line_comes_after_two_seconds_and_then_every_ten(
    start: float, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(start)
    with Steps(quiet=False, clock=clock) as steps:
        for second in range(31):
            clock.now = start + second
            steps.on_event(Advanced("elements encrypted", 1000 * second, 60_000))
    assert capsys.readouterr().err.splitlines() == [
        f"{1000 * done:,} of 60,000 elements encrypted, 1,000 per second, {60 - done} s left"
        for done in (2, 12, 22)
    ]


def test_quick_work_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Steps(quiet=False, clock=clock) as steps:
        for tenth in range(20):
            clock.now = tenth / 10
            steps.on_event(Advanced("elements encrypted", tenth, 19))
    assert capsys.readouterr() == ("", "")


def test_starting_over_starts_the_clock_anew(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(100.0)
    steps = Steps(quiet=False, clock=clock)
    for second, done in [(0, 0), (3, 300), (20, 50), (21, 80), (22, 250)]:
        clock.now = 100.0 + second
        steps.on_event(Advanced("elements", done, 1000))
    assert capsys.readouterr().err.splitlines() == [
        "300 of 1,000 elements, 100 per second, 7 s left",
        "250 of 1,000 elements, 125 per second, 6 s left",
    ]


def test_the_first_event_may_be_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(quiet=False, clock=Clock())
    steps.on_event(Advanced("elements", 0, 0))
    steps.on_event(StudyStarted("nowhere", 1, 1, 0, {}))  # of others' work
    assert capsys.readouterr().err == ""


def test_quiet_tells_of_trouble_alone(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    for quiet in (True, False):
        with Steps(quiet=quiet, clock=clock) as steps:
            steps.on_event(Noted("waiting for bob"))
            steps.on_event(Warned("lost bob"))
            for _ in range(3):
                clock.now += 60
                steps.on_event(Advanced("elements", 1, 2))
        said = capsys.readouterr().err.splitlines()
        if quiet:
            assert said == ["note: lost bob"]
        else:
            assert said[:2] == ["note: waiting for bob", "note: lost bob"]
            assert len(said) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test's own time: pytest puts its stderr back after fixtures."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    make = console.Console
    monkeypatch.setattr(
        console, "Console", lambda **options: make(force_terminal=True, width=140, **options)
    )
    return screen


def test_a_terminal_gets_a_bar_with_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    clock = Clock(5.0)
    with Steps(quiet=False, clock=clock) as steps:
        assert steps.bar is not None
        steps.bar.refresh()
        assert "waiting" in terminal.getvalue()
        steps.on_event(Advanced("elements encrypted", 0, 10_000))
        clock.now = 9.0
        steps.on_event(Advanced("elements encrypted", 4000, 10_000))
        steps.bar.refresh()
        shown = terminal.getvalue()
        assert "elements encrypted" in shown
        assert "4000/10000" in shown
        assert "1,000 per second" in shown
        steps.on_event(Noted("connected to [bold]bob[/bold] " + "x" * 200))
        assert "note: connected to [bold]bob[/bold] " + "x" * 200 in terminal.getvalue().replace(
            "\n", ""
        )
    assert steps.bar is None


def test_a_bar_ends_with_its_work_even_if_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    steps = Steps(quiet=False)
    with pytest.raises(KeyError), steps:
        raise KeyError
    assert steps.bar is None
    steps.on_event(Warned("too late"))
    assert "note: too late" in terminal.getvalue()


def test_quiet_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with Steps(quiet=True) as steps:
        steps.on_event(Advanced("elements", 1, 2))
    assert terminal.getvalue() == ""
