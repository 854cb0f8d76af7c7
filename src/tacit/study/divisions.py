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

DRAWN = 100  # clients at most; nobody looks at more


@dataclass(frozen=True)
class Division:
    """A run's data, divided among its clients."""

    run: Run
    dataset: Dataset
    partition: Partition
    portrait: Portrait


def portray(run: Run, split: str, dataset: Dataset, partition: Partition) -> Portrait:
    """The counts of a run's division of its data; `split` is what the study calls it."""
    drawn = min(run.clients, DRAWN)
    labels = dataset.groups.numpy()
    names = dataset.group_names
    return Portrait(
        dataset=dataset.name,
        split=split,
        seed=run.seed,
        clients=partition.names[:drawn],
        labels=names,
        train=_counts(partition.train[:drawn], labels, len(names)),
        test=_counts(partition.test[:drawn], labels, len(names)),
        noise=tuple(float(level) for level in partition.noise[:drawn]),
        left_out=run.clients - drawn,
    )


def division_key(run: Run) -> str:
    """A text that is the same for runs whose data are divided in the same way."""
    size = [run.clients, run.seed, run.server_samples, run.local_test]
    return str(plain([run.dataset, run.split, *size]))


def _counts(
    shards: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], classes: int
) -> tuple[tuple[int, ...], ...]:
    """How many samples of each class every shard has."""
    counts = [np.bincount(labels[shard], minlength=classes) for shard in shards]
    return tuple(tuple(row.tolist()) for row in counts)
