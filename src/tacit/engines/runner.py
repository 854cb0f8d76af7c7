"""Runs a study into a folder, and resumes one that was stopped: same seed, same bits."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tacit.core.errors import StudyError
from tacit.core.events import OnEvent, RoundFinished, RunFinished, StudyStarted, ignore
from tacit.core.files import replacing
from tacit.data.datasets import Dataset, data_folder
from tacit.engines import checkpoint
from tacit.engines.history import History
from tacit.engines.naming import label_runs, run_ids
from tacit.engines.simulation import Simulation, group_runs
from tacit.engines.state import RunState
from tacit.engines.study import Run, Study, plain

CHECKPOINT_SECONDS = 2.0  # between two checkpoints within a group; what is lost by a crash is computed again


@dataclass
class Progress:
    """How far a study has come."""

    group: int = 0
    states: list[dict[str, Any]] | None = None
    lengths: dict[str, int] | None = None
    done: int = 0  # rounds

    def saved(self) -> dict[str, Any]:
        return dict(vars(self))


def new_folder(study: Study, parent: str | Path = "runs") -> Path:
    """A folder for a new run of the study: runs/<name>-<time>."""
    stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', study.name)}-{datetime.now():%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{k}" for k in range(2, 1000))):
        folder = Path(parent) / f"{stem}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise StudyError(f"cannot make the folder {folder}: {error.strerror}") from None
        return folder
    raise StudyError(f"too many runs are called {stem} in {parent}")


def run_study(
    study: Study, folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore
) -> None:
    """Runs every point of the grid into the new folder."""
    runs = study.runs()  # errors come before anything is written
    with replacing(folder / "study.yaml") as file:
        file.write(study.to_yaml())
    _play(runs, folder, Progress(), data=data, device=device, on_event=on_event)


def resume_study(folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore) -> None:
    """Goes on where the study in this folder was stopped."""
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    study = Study.from_file(folder / "study.yaml")
    saved = folder / "checkpoints" / "study.pt"
    progress = Progress(**checkpoint.load(saved)) if saved.exists() else Progress()
    _play(study.runs(), folder, progress, data=data, device=device, on_event=on_event)


def _play(
    runs: list[Run], folder: Path, progress: Progress, *, data: str | None, device: str, on_event: OnEvent
) -> None:
    named = list(zip(run_ids(label_runs(runs)), runs, strict=True))
    groups = group_runs(named)
    loaded: dict[str, Dataset] = {}
    with _locked(folder):
        history = History(folder, progress.lengths)
        on_event(StudyStarted(str(folder), len(runs), sum(run.rounds for run in runs), progress.done))
        try:
            while progress.group < len(groups):
                group = groups[progress.group]
                source = group[0][1].dataset
                key = str(plain(source))
                if key not in loaded:
                    loaded = {key: source.load(data_folder(data), on_event)}  # one at a time: they are large
                simulation = Simulation(group, loaded[key], device=device)
                if progress.states is not None:
                    simulation.restore(progress.states)
                _play_group(simulation, folder, progress, history, on_event)
                progress.group, progress.states = progress.group + 1, None
                _checkpoint(folder, progress, history)
        finally:
            history.close()


def _play_group(simulation: Simulation, folder: Path, progress: Progress, history: History, on_event: OnEvent) -> None:
    last = time.monotonic()
    while simulation.going:
        for record, seconds in simulation.play_round():
            history.add(record, seconds)
            progress.done += 1
            on_event(RoundFinished(record["run"], record["round"], record))
        if simulation.going and time.monotonic() - last > CHECKPOINT_SECONDS:
            progress.states = simulation.saved()
            _checkpoint(folder, progress, history)
            last = time.monotonic()
    for state in simulation.states:
        _finish(simulation, state, folder, progress, on_event)


def _finish(simulation: Simulation, state: RunState, folder: Path, progress: Progress, on_event: OnEvent) -> None:
    checkpoint.save(folder / "models" / f"{state.id}.pt", simulation.state_dict(state))
    left = state.run.rounds - state.round
    progress.done += left  # of a run that stopped early
    on_event(RunFinished(state.id, state.round, state.status, left))


def _checkpoint(folder: Path, progress: Progress, history: History) -> None:
    progress.lengths = history.lengths()
    checkpoint.save(folder / "checkpoints" / "study.pt", progress.saved())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps two processes from writing to one folder."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StudyError(f"{folder} is being run by another process; wait for it or stop it") from None
        yield
