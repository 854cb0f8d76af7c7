"""Studies that start at the same time, and studies that are refused: what is left in `runs/`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from playground import FAST

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import Event, StudyStarted
from tacit.records import folder as folders
from tacit.records.history import read_lines

STARTS = 20
BARRIER = """
import os, sys
import tacit
from tacit.execution.placement import Placement
from tacit.execution.runner import run_study

study = tacit.Study(dataset="iris", model="linear", rounds=1, clients=2)
here = Placement(workers=1)
tacit.plan(study)  # imports everything
reading, writing = os.pipe()
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until all have been started
        try:
            folder = run_study(study, None, here)  # as tacit.run does, without the report
            sys.stdout.write(f"{folder}\\n")
            sys.stdout.flush()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\\n")
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(writing)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(max(codes))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_twenty_studies_that_start_together_get_twenty_folders(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BARRIER, str(STARTS)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    named = sorted(ended.stdout.split())
    made = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "runs").iterdir())
    assert len(set(named)) == STARTS
    assert named == made
    for name in named:
        assert len(read_lines(tmp_path / name / "history.jsonl")) == 1


def test_a_second_folder_of_the_same_second_is_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: object = None) -> Noon:
            return cls(2026, 11, 19, 12)

    monkeypatch.setattr(folders, "datetime", Noon)
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        with folders.new_folder(None, "my study") as folder:
            folders.write_text(folder / "study.yaml", "")
            names.append(folder.name)
    first = "my-study-20261119-120000"
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_a_study_that_ends_before_it_can_be_resumed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tacit.execution.runner.outline_study", _interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        tacit.run(FAST)
    assert os.listdir(tmp_path) == []
    assert not hasattr(caught.value, "__notes__")


def test_a_study_that_is_stopped_at_its_start_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        tacit.run(FAST, on_event=_stop_at_the_start)
    (note,) = caught.value.__notes__
    folder = re.fullmatch(r"continue with: tacit\.resume\('(.*)'\)", note)
    assert folder is not None
    assert tacit.resume(folder[1]).report.exists()


def test_of_two_studies_with_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    def start_another(event: Event) -> None:
        if isinstance(event, StudyStarted):
            with pytest.raises(StudyError, match=r"not empty|being run by another process"):
                tacit.run(FAST, tmp_path / "a")

    results = tacit.run(FAST, tmp_path / "a", on_event=start_another)
    assert results.report.exists()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _stop_at_the_start(event: Event) -> None:
    if isinstance(event, StudyStarted):
        raise KeyboardInterrupt
