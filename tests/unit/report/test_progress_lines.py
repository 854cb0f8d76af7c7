"""What a Python script shows of a study, without being asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from playground import FAST

import tacit

STUDY = {**FAST, "rounds": 3, "algorithm": ["fedavg", "fedprox"]}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are due at once."""
    monkeypatch.setattr("tacit.report.progress_lines.FIRST", 0.0)


def test_a_script_shows_how_far_a_study_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tacit.run(STUDY, tmp_path / "a", workers=1)
    shown = capsys.readouterr()
    first, *_, last = shown.err.splitlines()
    assert first.startswith("0 of 2 runs, 1 of 6 rounds")
    assert last.startswith("2 of 2 runs, 6 of 6 rounds, in ")
    assert shown.out == ""


def test_a_resumed_study_is_shown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = tmp_path / "a"
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, stopped, workers=1, on_event=_stop)
    capsys.readouterr()
    tacit.resume(stopped, workers=1)
    assert "2 of 2 runs, 6 of 6 rounds" in capsys.readouterr().err


def test_whoever_listens_gets_events_in_place_of_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[object] = []
    tacit.run(STUDY, tmp_path / "a", workers=1, on_event=heard.append)
    tacit.run(STUDY, tmp_path / "b", workers=1, on_event=[])
    assert heard
    assert capsys.readouterr() == ("", "")


def test_cautions_stay_warnings_of_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unused = {**FAST, "public": "iris"}
    with pytest.warns(UserWarning, match="neither pretraining nor distillation") as caught:
        tacit.run(unused, tmp_path / "a", workers=1)
    assert caught[0].filename == __file__
    assert "neither" not in capsys.readouterr().err


def test_a_program_without_a_console_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert tacit.run(STUDY, tmp_path / "a", workers=1).report.exists()


def _stop(event: object) -> None:
    raise KeyboardInterrupt
