"""A study's data as its report sees them: their classes, the metric that suits, the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from tacit.core.arrays import Index
from tacit.core.errors import StudyError
from tacit.data.dataset import Dataset
from tacit.records.data_summary import DatasetSummary, DataSummary
from tacit.study.run import Run
from tacit.study.source_keys import source_key
from tacit.training.evaluation import Answers
from tacit.training.metrics import METRICS
from tacit.training.yardstick import AUTO, Yardstick, choose_metric

MOST_CLASSES = 100  # whose counts are kept


def study_metric(runs: Sequence[Run], datasets: Mapping[str, Dataset]) -> tuple[str, str]:
    """The metric that decides in a study, and why."""
    asked = list(dict.fromkeys(run.metric for run in runs))
    if len(asked) > 1:
        raise StudyError(
            f"metric: a study is decided by one, got {' and '.join(asked)}; the tables show all"
            " metrics in any case"
        )
    (name,) = asked
    used = list({source_key(run.dataset): None for run in runs})
    chosen = {key: choose_metric(datasets[key], name).name for key in used}
    if name != AUTO:
        return name, "as the study says"
    if "auc" in chosen.values():
        (key, *_) = [key for key, metric in chosen.items() if metric == "auc"]
        return "auc", _describe_rare(datasets[key])
    metric = chosen[used[0]]
    if metric == "r2":
        return metric, "usual for numbers"
    return metric, "usual where no class is rare"


def summarise_data(
    named: Sequence[tuple[str, Run]], datasets: Mapping[str, Dataset]
) -> DataSummary:
    """What the report has to know of the data of these runs."""
    metric, reason = study_metric([run for _, run in named], datasets)
    keys = list({source_key(run.dataset): None for _, run in named})
    summaries = tuple(summarise_dataset(datasets[key], metric) for key in keys)
    dataset_of = {id: keys.index(source_key(run.dataset)) for id, run in named}
    return DataSummary(metric, reason, summaries, dataset_of)


def summarise_dataset(dataset: Dataset, metric: str = AUTO) -> DatasetSummary:
    positive = dataset.positive_class
    counts: tuple[int, ...] = ()
    test_counts: tuple[int, ...] = ()
    if dataset.classes <= MOST_CLASSES:
        counts = _counts(dataset.y.numpy(), dataset.classes)
        test_counts = _counts(dataset.test_y.numpy(), dataset.classes)
    guess, figures = baseline(dataset, metric)
    return DatasetSummary(
        name=dataset.name,
        rows=len(dataset.y),
        test_rows=len(dataset.test_y),
        labels=dataset.labels[:MOST_CLASSES],
        counts=counts,
        test_counts=test_counts,
        positive=None if positive is None else dataset.labels[positive],
        guess=guess,
        baseline=figures,
        left_out=dataset.left_out,
    )


def baseline(dataset: Dataset, metric: str = AUTO) -> tuple[str, dict[str, float | None]]:
    """What a model says that has learnt nothing but how frequent classes are, and its metrics.

    It is the most frequent class, with the classes' shares as probabilities; or the mean. It knows
    the training rows of all clients together.
    """
    rows = len(dataset.test_y)
    losses = torch.zeros(rows)
    if dataset.classes:
        counts = np.bincount(dataset.y.numpy(), minlength=dataset.classes)
        shares = torch.from_numpy(counts / len(dataset.y))
        majority = int(counts.argmax())
        answers = Answers(losses, shares.expand(rows, -1), torch.full((rows,), majority))
        guess = dataset.labels[majority]
    else:
        mean = dataset.y.double().mean()
        answers = Answers(losses, mean.expand(rows), torch.zeros(0, dtype=torch.int64))
        guess = f"{mean.item() * dataset.target_spread + dataset.target_centre:.4g}"
    yardstick = Yardstick.of(dataset, metric)
    return guess, yardstick.figures(yardstick.measure(answers, dataset.test_y))


def _counts(labels: Index, classes: int) -> tuple[int, ...]:
    if not classes:
        return ()
    return tuple(np.bincount(labels, minlength=classes).tolist())


def _describe_rare(dataset: Dataset) -> str:
    counts = np.bincount(dataset.y.numpy(), minlength=dataset.classes)
    rarest = int(counts.argmin())
    share = counts[rarest] / len(dataset.y)
    title = METRICS["accuracy"].title
    return (
        f"since {dataset.labels[rarest]} is rare ({share:.1%} of the rows of {dataset.name}), and"
        f" {title} praises a model that never finds it"
    )
