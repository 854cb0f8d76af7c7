"""Runs a study into a folder, and resumes one that was stopped: same seed, same bits."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from tacit.core.errors import StudyError
from tacit.core.events import OnEvent, RoundFinished, RunFinished, StudyStarted, Warned, ignore
from tacit.core.files import replacing
from tacit.data.datasets import Dataset, data_folder
from tacit.engines import checkpoint
from tacit.engines.checks import cautions
from tacit.engines.environment import note_environment
from tacit.engines.history import History
from tacit.engines.naming import encoding_files, label_runs, run_ids
from tacit.engines.portrait import Division, division_key, portray
from tacit.engines.simulation import Simulation, group_runs
from tacit.engines.state import RunState, is_personal, try_out
from tacit.engines.study import Run, Study, plain
from tacit.training.memory import keep_freed_memory

CHECKPOINT_SECONDS = 1.0  # between two checkpoints within a group; what is lost by a crash is computed again


@dataclass
class Progress:
    """How far a study has come; `key` says which study, on which data."""

    key: str
    group: int = 0
    states: list[dict[str, Any]] | None = None
    lengths: dict[str, int] | None = None
    done: int = 0  # rounds

    def saved(self) -> dict[str, Any]:
        return dict(vars(self))


def new_folder(study: Study, parent: str | Path = "runs") -> Path:
    """A name for a new run's folder that nobody has yet: runs/<name>-<time>."""
    word = re.sub(r"[^\w.-]+", "-", study.name).strip(".-") or "study"
    stem = f"{word}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (f"{stem}{suffix}" for suffix in itertools.chain([""], (f"-{k}" for k in itertools.count(2))))
    return next(Path(parent) / name for name in names if not (Path(parent) / name).exists())


def run_study(
    study: Study, folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore
) -> None:
    """Runs every point of the grid into the folder, which must be new or empty."""
    check_device(device)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StudyError(f"{folder} is not empty; resume the study in it, or name another folder")
    datasets, divisions = load_data(study, data, on_event)  # what makes no sense is found before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"cannot make the folder {folder}: {error.strerror}") from None
    with _locked(folder):
        _write(folder / "study.yaml", study.to_yaml())
        _write(folder / "splits.json", json.dumps([one.portrait.to_dict() for one in divisions]))
        _play(study, datasets, folder, device=device, on_event=on_event)


def resume_study(folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore) -> None:
    """Goes on where the study in this folder was stopped."""
    check_device(device)
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    study = Study.from_file(folder / "study.yaml")
    datasets, _ = load_data(study, data, on_event)
    with _locked(folder):
        _play(study, datasets, folder, device=device, on_event=on_event)


def check_device(device: str) -> None:
    """Refuses a device that this machine does not have."""
    kind = device.split(":")[0]
    if device != "cpu" and kind != "cuda":
        raise StudyError(f"device: expected cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise StudyError("device: torch finds no GPU here; use cpu")


def load_data(study: Study, data: str | None, on_event: OnEvent) -> tuple[dict[str, Dataset], list[Division]]:
    """The data sets that the runs need, each tried with every run's split and model, and who holds what of them."""
    datasets: dict[str, Dataset] = {}
    divisions: dict[str, Division] = {}
    runs = study.runs()
    for run, label in zip(runs, label_runs(runs), strict=True):
        for source in (run.dataset, run.public):
            if source is not None and str(plain(source)) not in datasets:
                datasets[str(plain(source))] = source.load(data_folder(data), on_event)
        dataset = datasets[str(plain(run.dataset))]
        partition, _ = try_out(run, dataset)
        if not run.centralised:
            portrait = portray(run, label["split"], dataset, partition)
            divisions.setdefault(division_key(run), Division(run, dataset, partition, portrait))
    _check_tasks(datasets, runs)
    return datasets, list(divisions.values())


def _check_tasks(datasets: dict[str, Dataset], runs: list[Run]) -> None:
    tasks = {datasets[str(plain(run.dataset))].task: datasets[str(plain(run.dataset))].name for run in runs}
    if len(tasks) > 1:
        texts = " and ".join(f"{name} for {task}" for task, name in tasks.items())
        raise StudyError(f"a study compares one score, and its data are {texts}; make two studies of it")


def _write_encodings(runs: list[Run], datasets: dict[str, Dataset], folder: Path) -> None:
    for source, file in encoding_files(runs).items():
        if encoding := datasets[source].encoding:
            encoding.save(folder / file)


def _play(study: Study, datasets: dict[str, Dataset], folder: Path, *, device: str, on_event: OnEvent) -> None:
    keep_freed_memory()
    note_environment(folder, device)
    runs, labels = study.runs(), label_runs(study.runs())
    named = list(zip(run_ids(labels), runs, strict=True))
    progress = _progress(folder, study, datasets)
    _write(folder / "runs.json", json.dumps(dict(zip(run_ids(labels), labels, strict=True)), indent=1))
    _write_encodings(runs, datasets, folder)
    groups = group_runs(named)
    history = History(folder, progress.lengths)
    for text in cautions(runs):
        on_event(Warned(text))
    on_event(StudyStarted(str(folder), len(runs), sum(run.rounds for run in runs), progress.done))
    try:
        while progress.group < len(groups):
            group = groups[progress.group]
            first = group[0][1]
            public = None if first.public is None else datasets[str(plain(first.public))]
            simulation = Simulation(group, datasets[str(plain(first.dataset))], public, device=device)
            if progress.states is not None:
                simulation.restore(progress.states)
            _play_group(simulation, folder, progress, history, on_event)
            progress.group, progress.states = progress.group + 1, None
            _checkpoint(folder, progress, history)
    finally:
        history.close()


def _progress(folder: Path, study: Study, datasets: dict[str, Dataset]) -> Progress:
    """How far the study has come, if its checkpoint is of this study and these data."""
    shown = json.dumps([study.to_dict(), [data.fingerprint() for data in datasets.values()]])
    key = hashlib.sha256(shown.encode()).hexdigest()
    path = folder / "checkpoints" / "study.pt"
    if not path.exists():
        return Progress(key)
    saved = checkpoint.load(path)
    if saved.get("key") != key:
        raise StudyError(
            f"{folder} was started with another study.yaml or other data, and its rounds would not fit together;"
            " run the changed study into a new folder"
        )
    return Progress(**saved)


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
    for client in range(state.run.clients) if is_personal(state.run) else ():
        checkpoint.save(folder / "models" / f"{state.id}-client-{client}.pt", simulation.state_dict(state, client))
    left = state.run.rounds - state.round
    progress.done += left  # of a run that stopped early
    on_event(RunFinished(state.id, state.round, state.status, left))


def _checkpoint(folder: Path, progress: Progress, history: History) -> None:
    progress.lengths = history.lengths()
    checkpoint.save(folder / "checkpoints" / "study.pt", progress.saved())


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)


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
