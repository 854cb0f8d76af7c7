"""Runs a study into a folder, and resumes one that was stopped: same seed, same bits."""

from __future__ import annotations

import itertools
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
from tacit.engines.state import RunState, try_out
from tacit.engines.study import Run, Study, plain

CHECKPOINT_SECONDS = 1.0  # between two checkpoints within a group; what is lost by a crash is computed again


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
    """A name for a new run's folder that nobody has yet: runs/<name>-<time>."""
    stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', study.name)}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (f"{stem}{suffix}" for suffix in itertools.chain([""], (f"-{k}" for k in itertools.count(2))))
    return next(Path(parent) / name for name in names if not (Path(parent) / name).exists())


def run_study(
    study: Study, folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore
) -> None:
    """Runs every point of the grid into the folder."""
    runs = study.runs()
    datasets = _load(runs, data, on_event)  # what makes no sense is found before anything is written
    try:
        with replacing(folder / "study.yaml") as file:
            file.write(study.to_yaml())
    except OSError as error:
        raise StudyError(f"cannot write to the folder {folder}: {error.strerror}") from None
    _play(runs, datasets, folder, Progress(), device=device, on_event=on_event)


def resume_study(folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore) -> None:
    """Goes on where the study in this folder was stopped."""
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    study = Study.from_file(folder / "study.yaml")
    saved = folder / "checkpoints" / "study.pt"
    progress = Progress(**checkpoint.load(saved)) if saved.exists() else Progress()
    runs = study.runs()
    _play(runs, _load(runs, data, on_event), folder, progress, device=device, on_event=on_event)


def _load(runs: list[Run], data: str | None, on_event: OnEvent) -> dict[str, Dataset]:
    """The data sets that the runs need, each tried with every run's split and model."""
    datasets: dict[str, Dataset] = {}
    for run in runs:
        key = str(plain(run.dataset))
        if key not in datasets:
            datasets[key] = run.dataset.load(data_folder(data), on_event)
        try_out(run, datasets[key])
    return datasets


def _play(
    runs: list[Run], datasets: dict[str, Dataset], folder: Path, progress: Progress, *, device: str, on_event: OnEvent
) -> None:
    named = list(zip(run_ids(label_runs(runs)), runs, strict=True))
    groups = group_runs(named)
    with _locked(folder):
        history = History(folder, progress.lengths)
        on_event(StudyStarted(str(folder), len(runs), sum(run.rounds for run in runs), progress.done))
        try:
            while progress.group < len(groups):
                group = groups[progress.group]
                simulation = Simulation(group, datasets[str(plain(group[0][1].dataset))], device=device)
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
