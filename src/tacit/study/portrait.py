"""Who holds what: the counts that drawings of a split are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.records.portrait import Portrait
from tacit.study.run import Run
from tacit.study.texts import plain

DRAWN = 100  # clients; nobody looks at more


@dataclass(frozen=True)
class Division:
    """A run's data as its clients hold them."""

    run: Run
    dataset: Dataset
    partition: Partition
    portrait: Portrait


def portray(run: Run, split: str, dataset: Dataset, partition: Partition) -> Portrait:
    """The counts of a run's division of its data; `split` is what the study calls it."""
    drawn = min(run.clients, DRAWN)
    labels, names = dataset.groups.numpy(), dataset.group_names
    train, test = (
        _counts(side[:drawn], labels, len(names)) for side in (partition.train, partition.test)
    )
    noise = tuple(float(level) for level in partition.noise[:drawn])
    clients = partition.names[:drawn]
    return Portrait(
        dataset.name, split, run.seed, clients, names, train, test, noise, run.clients - drawn
    )


def division_key(run: Run) -> str:
    """Tells two runs' divisions of the data apart."""
    return str(
        plain([run.dataset, run.split, run.clients, run.seed, run.server_samples, run.local_test])
    )


def _counts(
    parts: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], classes: int
) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(np.bincount(labels[part], minlength=classes).tolist()) for part in parts)

