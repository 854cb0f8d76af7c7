"""A study's data: read, divided and tried with every model, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.events import Event, OnEvent, Warned
from tacit.core.own_code import own_code
from tacit.data.dataset import Dataset
from tacit.data.datasets import FunctionSource, Source, data_folder
from tacit.data.partition import Partition, divide
from tacit.models.model import make_module
from tacit.study.checks import cautions
from tacit.study.data_summaries import study_metric
from tacit.study.divisions import Division, division_key, portray
from tacit.study.grid import name_point
from tacit.study.one_step import one_step_cautions
from tacit.study.run import Run
from tacit.study.run_names import TEST, Label, label_runs
from tacit.study.source_keys import source_key
from tacit.study.study import Study
from tacit.study.texts import plain

SUSPECTS = (
    "dataset",
    "test",
    "split",
    "clients",
    "model",
    "objective",
)  # settings for which data may refuse a run


@dataclass(frozen=True)
class StudyData:
    """The data of a study: the data sets, who holds what of them, and every run's partition."""

    datasets: dict[str, Dataset]  # by `source_key`
    divisions: list[Division]
    partitions: dict[str, Partition]  # by `division_key`
    metric: str  # that decides

    def cautions(self, runs: Sequence[Run]) -> list[str]:
        """What the authors of these runs should know, now that the data are known."""
        return [*cautions(runs), *one_step_cautions(runs, self.partitions)]


def load_data(study: Study, data: str | None, on_event: OnEvent) -> StudyData:
    """Loads the data sets that the runs need, and tries each run's split and model on them.

    What runs share is loaded and divided once.
    """
    if data is not None and Path(data).is_file():
        raise DataError(
            f"{data} is a file; expected the folder that data files are in", parameters=("data",)
        )
    runs = study.runs()
    loading = _Loading(data, on_event)
    for number, (run, label) in enumerate(zip(runs, label_runs(runs), strict=True)):
        loading.load(run)
        try:
            with own_code():
                partition = loading.divide(run)
        except TacitError as error:
            raise name_point(error, _suspects(runs, number)) from error.__cause__
        if not run.is_reference:
            loading.keep_division(run, _division_name(label), partition)
    _check_tasks(loading.datasets, runs)
    metric, _ = study_metric(runs, loading.datasets)
    divisions = list(loading.divisions.values())
    return StudyData(loading.datasets, divisions, loading.partitions, metric)


class _Loading:
    """The data that have been loaded and divided so far."""

    def __init__(self, folder: str | None, on_event: OnEvent) -> None:
        self.folder = folder
        self.on_event = _once(on_event)
        self.datasets: dict[str, Dataset] = {}
        self.partitions: dict[str, Partition] = {}
        self.divisions: dict[str, Division] = {}
        self.model_key = ""
        self.model = nn.Module()

    def load(self, run: Run) -> None:
        """Loads the run's data set, and its public data if it has any."""
        self._load_source(run.dataset)
        if run.public is not None:
            self._load_source(run.public)

    def divide(self, run: Run) -> Partition:
        """Who holds what of the run's data; or an error, if the data do not suit the run."""
        key = division_key(run)
        dataset = self.datasets[source_key(run.dataset)]
        if key not in self.partitions:
            self.partitions[key] = divide_for(run, dataset)
        partition = self.partitions[key]
        check_data(run, self._untrained(run, dataset), dataset, partition)
        return partition

    def _untrained(self, run: Run, dataset: Dataset) -> nn.Module:
        """A model like the run's, of any seed: the last one, if it is alike."""
        key = str(plain([run.model, run.dataset]))
        if key != self.model_key:
            self.model = _make_module(run, dataset)
            self.model_key = key
        return self.model

    def keep_division(self, run: Run, split: str, partition: Partition) -> None:
        """Keeps the division for the drawings of the study's splits."""
        key = division_key(run)
        if key in self.divisions:
            return
        dataset = self.datasets[source_key(run.dataset)]
        portrait = portray(run, split, dataset, partition)
        self.divisions[key] = Division(run, dataset, partition, portrait)

    def _load_source(self, source: Source) -> None:
        key = source_key(source)
        if key in self.datasets:
            return
        user_code = [source.path] if isinstance(source, FunctionSource) else []
        with own_code(user_code):
            self.datasets[key] = source.load(data_folder(self.folder), self.on_event)


def _once(on_event: OnEvent) -> OnEvent:
    """Tells each warning once: several data sets of one table have the same to say."""
    told: set[str] = set()

    def tell_once(event: Event) -> None:
        if isinstance(event, Warned):
            if event.text in told:
                return
            told.add(event.text)
        on_event(event)

    return tell_once


def try_out(
    run: Run, dataset: Dataset, partition: Partition | None = None
) -> tuple[Partition, nn.Module]:
    """The run's division of the data and its untrained model, or an error that says why not.

    `partition` is the division, if it has been made before.
    """
    partition = partition or divide_for(run, dataset)
    module = _make_module(run, dataset)
    check_data(run, module, dataset, partition)
    return partition, module


def check_data(run: Run, module: nn.Module, dataset: Dataset, partition: Partition) -> None:
    """Refuses a run whose model or whose clients' samples do not suit it."""
    run.check_data(module, dataset, [len(samples) for samples in partition.train])


def _make_module(run: Run, dataset: Dataset) -> nn.Module:
    return make_module(run.model, dataset.x.shape[1:], dataset.outputs, run.seed)


def divide_for(run: Run, dataset: Dataset) -> Partition:
    """Who holds what of the data in this run."""
    options: dict[str, Any] = {
        "server_samples": run.server_samples,
        "local_test": run.local_test,
    }
    if dataset.owner is not None:
        options["owner"] = dataset.owner.numpy()
        options["owners"] = dataset.owners
        options["column"] = dataset.client
        if dataset.left_out is not None:
            options["column"] = f"{dataset.client}, without {dataset.left_out},"
    if dataset.person is not None:
        options["person"] = dataset.person.numpy()
    return divide(dataset.groups.numpy(), run.split, run.clients, run.seed, **options)


def _check_tasks(datasets: dict[str, Dataset], runs: list[Run]) -> None:
    """Refuses a study of classes and of numbers."""
    names_by_task: dict[str, str] = {}
    for run in runs:
        dataset = datasets[source_key(run.dataset)]
        names_by_task[dataset.task] = dataset.name
    if len(names_by_task) > 1:
        texts = " and ".join(f"{name} for {task}" for task, name in names_by_task.items())
        raise StudyError(
            f"a study compares one score, and its data are {texts}; make two studies of it"
        )


def _division_name(label: Label) -> str:
    """What drawings call a division: its split, and what is tested on where that varies."""
    if TEST not in label:
        return str(label["split"])
    return f"{label['split']}, tested on {label[TEST]}"


def _suspects(runs: list[Run], refused: int) -> dict[str, Any]:
    """The settings that tell a refused run from the runs before it, which were accepted."""
    labels = label_runs(runs)
    if refused == 0:
        compared = [label for run, label in zip(runs, labels, strict=True) if not run.is_reference]
        return _varying_settings(compared or labels)
    suspects = {}
    for key, value in labels[refused].items():
        accepted = {str(label[key]) for label in labels[:refused]}
        if str(value) not in accepted:
            suspects[key] = value
    return suspects


def _varying_settings(labels: list[dict[str, Any]]) -> dict[str, Any]:
    """The first run's settings that may be to blame: those that differ between runs."""
    varying = {}
    for key in SUSPECTS:
        if key in labels[0] and len({str(label[key]) for label in labels}) > 1:
            varying[key] = labels[0][key]
    return varying
