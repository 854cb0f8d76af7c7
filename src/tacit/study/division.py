"""A study's data: read, divided and tried with every model, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.events import OnEvent
from tacit.core.own_code import own_code
from tacit.data.dataset import Dataset
from tacit.data.datasets import Function, data_folder
from tacit.data.partition import Partition
from tacit.simulation.state import try_out
from tacit.study.grid import renamed
from tacit.study.names import label_runs
from tacit.study.portrait import Division, division_key, portray
from tacit.study.study import Run, Study, plain


def load_data(study: Study, data: str | None, on_event: OnEvent) -> tuple[dict[str, Dataset], list[Division]]:
    """The data sets that the runs need, each tried with every run's split and model, and who holds what of them."""
    datasets: dict[str, Dataset] = {}
    divisions: dict[str, Division] = {}
    divided: dict[str, Partition] = {}
    runs = study.runs()
    if data is not None and Path(data).is_file():
        raise DataError(f"{data} is a file; --data names the folder that data files are in")
    for k, (run, label) in enumerate(zip(runs, label_runs(runs), strict=True)):
        for source in (run.dataset, run.public):
            if source is not None and str(plain(source)) not in datasets:
                with own_code([source.path] if isinstance(source, Function) else ()):
                    datasets[str(plain(source))] = source.load(data_folder(data), on_event)
        dataset = datasets[str(plain(run.dataset))]
        try:
            with own_code():
                partition, _ = try_out(run, dataset, divided.get(division_key(run)))
        except TacitError as error:
            raise renamed(error, _suspects(runs, k)) from error.__cause__
        divided[division_key(run)] = partition
        if not run.centralised and division_key(run) not in divisions:
            portrait = portray(run, label["split"], dataset, partition)
            divisions[division_key(run)] = Division(run, dataset, partition, portrait)
    _check_tasks(datasets, runs)
    return datasets, list(divisions.values())


def _check_tasks(datasets: dict[str, Dataset], runs: list[Run]) -> None:
    tasks = {datasets[str(plain(run.dataset))].task: datasets[str(plain(run.dataset))].name for run in runs}
    if len(tasks) > 1:
        texts = " and ".join(f"{name} for {task}" for task, name in tasks.items())
        raise StudyError(f"a study compares one score, and its data are {texts}; make two studies of it")


def _suspects(runs: list[Run], refused: int) -> dict[str, Any]:
    """What tells a run that its data refuse from those before it, which they did not."""
    labels = label_runs(runs)
    if not refused:
        varying = [key for key in ("dataset", "split", "clients", "model") if key in labels[0]]
        return {key: labels[0][key] for key in varying if len({str(label[key]) for label in labels}) > 1}
    passed = {key: {str(label[key]) for label in labels[:refused]} for key in labels[0]}
    return {key: value for key, value in labels[refused].items() if str(value) not in passed[key]}
