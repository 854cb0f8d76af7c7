"""A study's data: read, divided and tried with every model, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.events import OnEvent
from tacit.core.own_code import own_code
from tacit.data.dataset import Dataset
from tacit.data.datasets import FunctionSource, data_folder
from tacit.data.partition import Partition, divide
from tacit.models.model import make_module
from tacit.study.grid import renamed
from tacit.study.portrait import Division, division_key, portray
from tacit.study.run import Run
from tacit.study.run_names import label_runs
from tacit.study.study import Study
from tacit.study.texts import plain


@dataclass(frozen=True)
class StudyData:
    """The data of a study: each data set by its settings, who holds what of them, and every run's division of them."""

    datasets: dict[str, Dataset]
    divisions: list[Division]
    partitions: dict[str, Partition]  # by `division_key`


def load_data(study: Study, data: str | None, on_event: OnEvent) -> StudyData:
    """The data sets that the runs need, each divided once and tried with every run's split and model."""
    datasets: dict[str, Dataset] = {}
    divisions: dict[str, Division] = {}
    partitions: dict[str, Partition] = {}
    runs = study.runs()
    if data is not None and Path(data).is_file():
        raise DataError(f"{data} is a file; --data names the folder that data files are in")
    for k, (run, label) in enumerate(zip(runs, label_runs(runs), strict=True)):
        for source in (run.dataset, run.public):
            if source is not None and str(plain(source)) not in datasets:
                with own_code([source.path] if isinstance(source, FunctionSource) else ()):
                    datasets[str(plain(source))] = source.load(data_folder(data), on_event)
        dataset, key = datasets[str(plain(run.dataset))], division_key(run)
        try:
            with own_code():
                partition, _ = try_out(run, dataset, partitions.get(key))
        except TacitError as error:
            raise renamed(error, _suspects(runs, k)) from error.__cause__
        partitions[key] = partition
        if not run.is_reference and key not in divisions:
            divisions[key] = Division(
                run, dataset, partition, portray(run, label["split"], dataset, partition)
            )
    _check_tasks(datasets, runs)
    return StudyData(datasets, list(divisions.values()), partitions)


def try_out(
    run: Run, dataset: Dataset, partition: Partition | None = None
) -> tuple[Partition, nn.Module]:
    """The run's division of the data, if it is not known yet, and its untrained model, or why there can be none."""
    partition = partition or divide_for(run, dataset)
    module = make_module(run.model, dataset.x.shape[1:], dataset.outputs, run.seed)
    run.check_data(module, dataset, [len(samples) for samples in partition.train])
    return partition, module


def divide_for(run: Run, dataset: Dataset) -> Partition:
    """Who holds what of the data in this run."""
    aside: dict[str, Any] = {"server_samples": run.server_samples, "local_test": run.local_test}
    if dataset.owner is not None:
        aside |= {
            "owner": dataset.owner.numpy(),
            "owners": dataset.owners,
            "column": dataset.client,
        }
    return divide(dataset.groups.numpy(), run.split, run.clients, run.seed, **aside)


def _check_tasks(datasets: dict[str, Dataset], runs: list[Run]) -> None:
    tasks = {
        datasets[str(plain(run.dataset))].task: datasets[str(plain(run.dataset))].name
        for run in runs
    }
    if len(tasks) > 1:
        texts = " and ".join(f"{name} for {task}" for task, name in tasks.items())
        raise StudyError(
            f"a study compares one score, and its data are {texts}; make two studies of it"
        )


def _suspects(runs: list[Run], refused: int) -> dict[str, Any]:
    """What tells a run that its data refuse from those before it, which they did not."""
    labels = label_runs(runs)
    if not refused:
        varying = [key for key in ("dataset", "split", "clients", "model") if key in labels[0]]
        return {
            key: labels[0][key] for key in varying if len({str(label[key]) for label in labels}) > 1
        }
    passed = {key: {str(label[key]) for label in labels[:refused]} for key in labels[0]}
    return {key: value for key, value in labels[refused].items() if str(value) not in passed[key]}
