"""Runs a study into a folder, and resumes one that was stopped: same seed, same bits, wherever its runs are played."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.core.errors import StudyError
from tacit.core.events import OnEvent, StudyStarted, Warned, ignore
from tacit.data.dataset import Dataset
from tacit.execution.estimates import Estimator
from tacit.execution.plan import Plan
from tacit.execution.planner import Placement, make_plan
from tacit.execution.play import Task
from tacit.records import folder as folders
from tacit.records.checkpoint import Checkpoints
from tacit.records.environment import note_environment, read_environment
from tacit.records.folder import new_folder as new_folder
from tacit.records.recorder import Recorder
from tacit.study.checks import cautions
from tacit.study.run import Run
from tacit.study.run_names import encoding_files, label_runs, row_names, run_ids, table_columns
from tacit.study.study import Study, describe
from tacit.study.study_data import StudyData, load_data
from tacit.study.user_code import Named

CHECKPOINT_SECONDS = (
    1.0  # between two checkpoints of a study; what is lost by a crash is computed again
)


def plan_study(study: Study, placement: Placement, *, data: str | None = None) -> Plan:
    """What `run_study` would do."""
    return _plan(_named(study), placement, load_data(study, data, ignore))


def plan_rest(folder: Path, placement: Placement, *, data: str | None = None) -> Plan:
    """What `resume_study` would do."""
    study = _read(folder)
    loaded = load_data(study, data, ignore)
    return _plan(
        _named(study), placement, loaded, Checkpoints(folder, _key(study, loaded.datasets)).ended
    )


def run_study(
    study: Study,
    folder: Path,
    placement: Placement,
    *,
    data: str | None = None,
    on_event: OnEvent = ignore,
) -> None:
    """Runs every point of the grid into the folder, which must be new or empty."""
    folders.check_empty(folder)
    loaded = load_data(
        study, data, on_event
    )  # what makes no sense is found before anything is written
    new = folders.make(folder)
    with folders.locked(folder), folders.undone(folder, new):
        folders.write_text(folder / "study.yaml", study.to_yaml())
        folders.write_text(
            folder / "splits.json", json.dumps([one.portrait.to_dict() for one in loaded.divisions])
        )
        _play(study, loaded, folder, placement, on_event)


def resume_study(
    folder: Path, placement: Placement, *, data: str | None = None, on_event: OnEvent = ignore
) -> None:
    """Goes on where the study in this folder was stopped."""
    study = _read(folder)
    loaded = load_data(study, data, on_event)
    with folders.locked(folder):
        _play(study, loaded, folder, placement, on_event)


def _read(folder: Path) -> Study:
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    try:
        return Study.from_file(folder / "study.yaml")
    except StudyError as error:
        raise StudyError(f"cannot resume {folder}: {error}") from error.__cause__


def _play(
    study: Study, loaded: StudyData, folder: Path, placement: Placement, on_event: OnEvent
) -> None:
    named, labels, key = _named(study), label_runs(study.runs()), _key(study, loaded.datasets)
    checkpoints = Checkpoints(folder, key)
    plan = _plan(named, placement, loaded, checkpoints.ended)
    _note_environment(folder, plan)
    folders.write_text(
        folder / "runs.json", json.dumps(dict(zip(run_ids(labels), labels, strict=True)), indent=1)
    )
    _write_encodings([run for _, run in named], loaded.datasets, folder)
    recorder = Recorder(folder, {id: run.rounds for id, run in named}, checkpoints, on_event)
    checkpoints.arrange((block.index, block.runs) for block in plan.blocks)
    for text in [*cautions([run for _, run in named]), *([plan.caution] if plan.caution else [])]:
        on_event(Warned(text))
    on_event(_start(study, named, folder, recorder.done))
    complete = False
    try:
        if plan.blocks:
            tasks = _tasks(plan, named, key, exact=placement.exact)
            if not (plan.on or plan.workers):
                tasks = [replace(task, partitions=loaded.partitions) for task in tasks]
            _execute(plan, tasks, loaded.datasets, recorder)
        complete = True
    finally:
        recorder.close(complete=complete)


def _note_environment(folder: Path, plan: Plan) -> None:
    """Where the study runs, if anything of it is left to run."""
    if not plan.blocks and read_environment(folder):
        return
    place = "a Ray cluster" if plan.on else plan.place.partition(",")[0]
    here = plan.on is None
    about: dict[str, Any] = {"threads": plan.threads, "side_by_side": plan.beside, "here": here}
    note_environment(folder, devices=plan.devices, place=place, **about)


def _start(study: Study, named: Sequence[Named], folder: Path, done: int) -> StudyStarted:
    """All that is known of the study before its first round, or before the next one."""
    return StudyStarted(
        folder=str(folder),
        runs=len(named),
        rounds=sum(run.rounds for _, run in named),
        done=done,
        grid=_grid(label_runs(study.runs())),
        study=study.to_dict(),
        settings={id: describe(run) for id, run in named},
    )


def _execute(
    plan: Plan, tasks: list[Task], datasets: dict[str, Dataset], recorder: Recorder
) -> None:
    """Plays the blocks where the plan says; what is not needed there is not imported."""
    if plan.on:
        from tacit.execution.ray import play
    elif plan.workers:
        from tacit.execution.processes import play
    else:
        from tacit.execution.here import play
    play(plan, tasks, datasets, recorder)


def _plan(
    named: Sequence[Named],
    placement: Placement,
    loaded: StudyData,
    done: Sequence[str] | dict[str, Any] = (),
) -> Plan:
    return make_plan(named, placement, Estimator(loaded.datasets, loaded.partitions), tuple(done))


def _tasks(plan: Plan, named: Sequence[Named], key: str, *, exact: bool) -> list[Task]:
    """The blocks as those who play them get them; the more of these, the more seldom each one is saved."""
    runs, every = dict(named), CHECKPOINT_SECONDS * (plan.workers or 1)
    return [
        Task(
            index=block.index,
            runs=tuple((id, runs[id]) for id in block.runs),
            key=key,
            at_once=block.at_once
            if plan.devices != ("cpu",) and block.at_once < block.rows
            else None,
            every=every,
            device=plan.devices[0],
            exact=exact,
            beside=plan.beside,
        )
        for block in plan.blocks
    ]


def _named(study: Study) -> list[Named]:
    runs = study.runs()
    return list(zip(run_ids(label_runs(runs)), runs, strict=True))


def _key(study: Study, datasets: dict[str, Dataset]) -> str:
    """Tells this study on these data from any other."""
    shown = json.dumps([study.to_dict(), [data.fingerprint() for data in datasets.values()]])
    return hashlib.sha256(shown.encode()).hexdigest()


def _write_encodings(runs: list[Run], datasets: dict[str, Dataset], folder: Path) -> None:
    for source, file in encoding_files(runs).items():
        if encoding := datasets[source].encoding:
            encoding.save(folder / file)


def _grid(labels: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Where each run's result goes in the comparison: its row and its column."""
    column = table_columns(labels)
    placement = [
        (row, str(label[column])) for row, label in zip(row_names(labels), labels, strict=True)
    ]
    return dict(zip(run_ids(labels), placement, strict=True))
