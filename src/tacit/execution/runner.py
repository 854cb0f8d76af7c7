"""Runs a study into a folder, and resumes one that was stopped.

The same seed gives the same bits, wherever the runs are played.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.core.errors import StudyError
from tacit.core.events import OnEvent, StudyStarted, Warned, ignore
from tacit.core.yaml_text import LONGEST
from tacit.data.dataset import Dataset
from tacit.execution.estimates import Estimator
from tacit.execution.placement import Placement
from tacit.execution.plan import Block, Plan
from tacit.execution.planner import make_plan
from tacit.execution.play import BlockTask
from tacit.records import folder as folders
from tacit.records.checkpoint import Checkpoints
from tacit.records.environment import note_environment, read_environment
from tacit.records.recorder import Recorder
from tacit.study.data_summaries import summarise_data
from tacit.study.outlines import outline_study
from tacit.study.run import Run
from tacit.study.run_names import encoding_files, label_runs, row_names, run_ids, table_columns
from tacit.study.study import Study, describe
from tacit.study.study_data import StudyData, load_data
from tacit.study.user_code import RunWithId
from tacit.training.metrics import METRICS

# Seconds between two checkpoints of a study; what a crash loses is computed again.
CHECKPOINT_SECONDS = 1.0


def plan_study(study: Study, placement: Placement, *, data: str | None = None) -> Plan:
    """What `run_study` would do."""
    loaded = load_data(study, data, ignore)
    return _plan(_named(study), placement, loaded)


def plan_rest(folder: Path, placement: Placement, *, data: str | None = None) -> Plan:
    """What `resume_study` would do."""
    study = _read(folder)
    loaded = load_data(study, data, ignore)
    checkpoints = Checkpoints(folder, _key(study, loaded.datasets))
    return _plan(_named(study), placement, loaded, checkpoints.ended)


def run_study(
    study: Study,
    folder: Path | None,
    placement: Placement,
    *,
    data: str | None = None,
    on_event: OnEvent = ignore,
) -> Path:
    """Runs every point of the grid into the folder, which must be new or empty.

    Without one, a new folder is made in `runs/`. Returns the folder.
    """
    if folder is not None:
        folders.check_empty(folder)
    text = _file_text(study)
    loaded = load_data(study, data, on_event)  # refuses nonsense before anything is written
    portraits = [division.portrait.to_dict() for division in loaded.divisions]
    with folders.new_folder(folder, study.name) as target, folders.resumable(target):
        folders.write_text(target / "splits.json", json.dumps(portraits))
        _play(study, loaded, target, placement, on_event, text)
    return target


def resume_study(
    folder: Path, placement: Placement, *, data: str | None = None, on_event: OnEvent = ignore
) -> None:
    """Goes on where the study in this folder was stopped."""
    study = _read(folder)
    loaded = load_data(study, data, on_event)
    with folders.resumable(folder), folders.locked(folder):
        _play(study, loaded, folder, placement, on_event)


def _file_text(study: Study) -> str:
    """The study as a file, if the file can be read again."""
    text = study.to_yaml()
    if len(text.encode()) > LONGEST:
        raise StudyError(
            f"the study needs a file of more than {LONGEST:,} bytes; use shorter lists"
        )
    return text


def _read(folder: Path) -> Study:
    if not (folder / "study.yaml").exists():
        raise StudyError(f"{folder} holds no study to resume: there is no study.yaml in it")
    try:
        return Study.from_file(folder / "study.yaml")
    except StudyError as error:
        text = f"cannot resume {folder}: {error}"
        raise StudyError(text, parameters=error.parameters) from error.__cause__


def _play(
    study: Study,
    loaded: StudyData,
    folder: Path,
    placement: Placement,
    on_event: OnEvent,
    text: str | None = None,
) -> None:
    """Plays what is left of the study, and records it.

    `text` is the file of a new study. It is written once all else is prepared: from then on the
    study can be resumed.
    """
    named = _named(study)
    key = _key(study, loaded.datasets)
    checkpoints = Checkpoints(folder, key)
    plan = _plan(named, placement, loaded, checkpoints.ended)
    _note_environment(folder, plan)
    cautions = loaded.cautions([run for _, run in named])
    outline_study(study, cautions).write(folder)
    summarise_data(named, loaded.datasets).write(folder)
    _write_encodings([run for _, run in named], loaded.datasets, folder)
    rounds = {id: run.rounds for id, run in named}
    recorder = Recorder(folder, rounds, checkpoints, on_event, loaded.metric)
    complete = False
    try:
        checkpoints.arrange((block.index, block.runs) for block in plan.blocks)
        if text is not None:
            folders.write_text(folder / "study.yaml", text)
        _warn(cautions, plan, on_event)
        on_event(_started_event(study, named, folder, recorder.done, loaded.metric))
        if plan.blocks:
            tasks = _tasks(plan, named, key, metric=loaded.metric, exact=placement.exact)
            _execute(plan, tasks, loaded, recorder)
        complete = True
    finally:
        recorder.close(complete=complete)


def _note_environment(folder: Path, plan: Plan) -> None:
    """Notes where the study runs, unless nothing of it is left to run."""
    if not plan.blocks and read_environment(folder):
        return
    location = "a Ray cluster" if plan.on else plan.place.partition(",")[0]
    note_environment(
        folder,
        devices=plan.devices,
        place=location,
        threads=plan.threads,
        side_by_side=plan.side_by_side,
        here=plan.on is None,
    )


def _write_encodings(runs: list[Run], datasets: dict[str, Dataset], folder: Path) -> None:
    for source, file in encoding_files(runs).items():
        encoding = datasets[source].encoding
        if encoding:
            encoding.save(folder / file)


def _warn(cautions: Sequence[str], plan: Plan, on_event: OnEvent) -> None:
    for text in cautions:
        on_event(Warned(text))
    if plan.caution:
        on_event(Warned(plan.caution))


def _started_event(
    study: Study, named: Sequence[RunWithId], folder: Path, done: int, metric: str
) -> StudyStarted:
    """All that is known of the study before its first round, or before the next one."""
    rounds = sum(run.rounds for _, run in named)
    labels = label_runs(study.runs())
    settings = {id: describe(run) for id, run in named}
    return StudyStarted(
        folder=str(folder),
        runs=len(named),
        rounds=rounds,
        done=done,
        grid=_grid(labels),
        study=study.to_dict(),
        settings=settings,
        metric=metric,
        lowest_is_best=METRICS[metric].lowest_is_best,
    )


def _execute(plan: Plan, tasks: list[BlockTask], loaded: StudyData, recorder: Recorder) -> None:
    """Plays the blocks where the plan says; modules that are not needed there are not imported."""
    if plan.on:
        from tacit.execution.ray import play
    elif plan.workers:
        from tacit.execution.processes import play
    else:
        from tacit.execution.here import play

        tasks = [replace(task, partitions=loaded.partitions) for task in tasks]
    play(plan, tasks, loaded.datasets, recorder)


def _plan(
    named: Sequence[RunWithId],
    placement: Placement,
    loaded: StudyData,
    done: Collection[str] = (),
) -> Plan:
    estimator = Estimator(loaded.datasets, loaded.partitions)
    return make_plan(named, placement, estimator, done)


def _tasks(
    plan: Plan, named: Sequence[RunWithId], key: str, *, metric: str, exact: bool
) -> list[BlockTask]:
    """The blocks for those who play them.

    The more workers there are, the less often each one saves its block.
    """
    runs = dict(named)
    every = CHECKPOINT_SECONDS * (plan.workers or 1)
    tasks = []
    for block in plan.blocks:
        task = BlockTask(
            index=block.index,
            runs=tuple((id, runs[id]) for id in block.runs),
            key=key,
            at_once=_limit(plan, block),
            every=every,
            device=plan.devices[0],
            exact=exact,
            metric=metric,
            side_by_side=plan.side_by_side,
        )
        tasks.append(task)
    return tasks


def _limit(plan: Plan, block: Block) -> int | None:
    """How many rows a GPU trains at once, if its memory does not suffice for all."""
    on_gpu = plan.devices != ("cpu",)
    return block.at_once if on_gpu and block.at_once < block.rows else None


def _named(study: Study) -> list[RunWithId]:
    runs = study.runs()
    ids = run_ids(label_runs(runs))
    return list(zip(ids, runs, strict=True))


def _key(study: Study, datasets: dict[str, Dataset]) -> str:
    """A hash that tells this study on these data from any other."""
    fingerprints = [data.fingerprint() for data in datasets.values()]
    text = json.dumps([study.to_dict(), fingerprints])
    return hashlib.sha256(text.encode()).hexdigest()


def _grid(labels: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Each run's row and column in the comparison."""
    setting = table_columns(labels)
    columns = [str(label[setting]) for label in labels]
    cells = zip(row_names(labels), columns, strict=True)
    return dict(zip(run_ids(labels), cells, strict=True))
