"""Runs a study into a folder, and resumes one that was stopped: same seed, same bits."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from tacit.core.errors import StudyError, TacitError
from tacit.core.events import OnEvent, RoundFinished, RunFinished, StudyStarted, Warned, ignore
from tacit.core.files import replacing
from tacit.core.own_code import own_code
from tacit.core.registry import Registered
from tacit.data.datasets import Dataset
from tacit.engines import checkpoint
from tacit.engines.checks import cautions
from tacit.engines.clients import chosen_for
from tacit.engines.environment import note_environment
from tacit.engines.history import History, read_lines
from tacit.engines.loading import load_data
from tacit.engines.metrics import tested_clients
from tacit.engines.naming import encoding_files, label_runs, row_names, run_ids, table_columns
from tacit.engines.simulation import Simulation, group_runs
from tacit.engines.state import RunState, is_personal
from tacit.engines.study import Run, Study, plain
from tacit.models.model import Imported
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
    word = re.sub(r"[^\w.-]+", "-", study.name).strip(".-")[:80] or "study"
    stem = f"{word}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (f"{stem}{suffix}" for suffix in itertools.chain([""], (f"-{k}" for k in itertools.count(2))))
    return next(Path(parent) / name for name in names if not (Path(parent) / name).exists())


def run_study(
    study: Study, folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore
) -> None:
    """Runs every point of the grid into the folder, which must be new or empty."""
    check_device(device)
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file; name a folder for the results")
    if folder.exists() and any(folder.iterdir()):
        raise StudyError(f"{folder} is not empty; resume the study in it, or name another folder")
    datasets, divisions = load_data(study, data, on_event)  # what makes no sense is found before anything is written
    new = _make(folder)
    with _locked(folder), _undone(folder, new):
        _write(folder / "study.yaml", study.to_yaml())
        _write(folder / "splits.json", json.dumps([one.portrait.to_dict() for one in divisions]))
        _play(study, datasets, folder, device=device, on_event=on_event)


def resume_study(folder: Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent = ignore) -> None:
    """Goes on where the study in this folder was stopped."""
    check_device(device)
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    try:
        study = Study.from_file(folder / "study.yaml")
    except StudyError as error:
        raise StudyError(f"cannot resume {folder}: {error}") from error.__cause__
    datasets, _ = load_data(study, data, on_event)
    with _locked(folder):
        _play(study, datasets, folder, device=device, on_event=on_event)


def check_device(device: str) -> None:
    """Refuses a device that this machine does not have."""
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (kind == "cpu" and number) or (":" in str(device) and not number.isdigit()):
        raise StudyError(f"device: expected cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise StudyError("device: torch finds no GPU here; use cpu")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise StudyError(f"device: this machine has {torch.cuda.device_count()} GPUs, from cuda:0; got {device!r}")


def _write_encodings(runs: list[Run], datasets: dict[str, Dataset], folder: Path) -> None:
    for source, file in encoding_files(runs).items():
        if encoding := datasets[source].encoding:
            encoding.save(folder / file)


def _guests(runs: list[tuple[str, Run]]) -> list[str]:
    """The methods and models of a group that are the user's own, by import path."""
    values = [value for _, run in runs for value in vars(run).values()]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    methods = [f"{type(part).__module__}:{type(part).__qualname__}" for part in parts if isinstance(part, Registered)]
    modules = [run.model.path for _, run in runs if isinstance(run.model, Imported)]
    return list(dict.fromkeys([name for name in methods if not name.startswith("tacit.")] + modules))


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
    on_event(StudyStarted(str(folder), len(runs), sum(run.rounds for run in runs), progress.done, _grid(labels)))
    try:
        while progress.group < len(groups):
            group = groups[progress.group]
            first = group[0][1]
            public = None if first.public is None else datasets[str(plain(first.public))]
            with own_code(_guests(group)):
                simulation = Simulation(
                    group, datasets[str(plain(first.dataset))], public, device=device, folder=folder / "memories"
                )
            if progress.states is not None:
                simulation.restore(progress.states)
            _play_group(simulation, folder, progress, history, on_event)
            progress.group, progress.states = progress.group + 1, None
            _checkpoint(folder, progress, history)
            simulation.discard()
    finally:
        history.close()
    shutil.rmtree(folder / "memories", ignore_errors=True)  # also what a crash has left there


def _grid(labels: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Where each run's result goes in the comparison: its row and its column."""
    column = table_columns(labels)
    places = [(row, str(label[column])) for row, label in zip(row_names(labels), labels, strict=True)]
    return dict(zip(run_ids(labels), places, strict=True))


def _rounds(simulation: Simulation) -> Iterator[tuple[dict[str, Any], float]]:
    """One round of every run; what the user's own code raises in it is named."""
    with own_code(_guests([(state.id, state.run) for state in simulation.states])):
        yield from simulation.play_round()


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
        for record, seconds in _rounds(simulation):
            history.add(record, seconds)
            progress.done += 1
            on_event(RoundFinished(record["run"], record["round"], record))
        if simulation.going and time.monotonic() - last > CHECKPOINT_SECONDS:
            progress.states = simulation.saved()
            _checkpoint(folder, progress, history)
            simulation.checkpointed()
            last = time.monotonic()
    for state in simulation.states:
        _finish(simulation, state, folder, progress, on_event)


def _finish(simulation: Simulation, state: RunState, folder: Path, progress: Progress, on_event: OnEvent) -> None:
    checkpoint.save(folder / "models" / f"{state.id}.pt", simulation.state_dict(state))
    tested = tested_clients(state.run, chosen_for(state.run, state.round - 1))
    for client in tested if is_personal(state.run) else ():
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


def _make(folder: Path) -> list[Path]:
    """Makes the folder; those that were not there before, the innermost first."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _clear(folder, new)
        raise StudyError(f"cannot make the folder {folder}: {error.strerror}") from None
    return new


@contextmanager
def _undone(folder: Path, new: list[Path]) -> Iterator[None]:
    """Takes the folder away again if the study is refused before its first round."""
    try:
        yield
    except TacitError:
        if not read_lines(folder / "history.jsonl"):
            _clear(folder, new)
        raise


def _clear(folder: Path, new: list[Path]) -> None:
    """Empties the folder, and removes those that are new."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for place in new:
        with suppress(OSError):  # somebody else has put something there by now, or it was never made
            place.rmdir()


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
