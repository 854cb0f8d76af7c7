"""Who holds what: the counts that drawings of a split are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.dataset import Dataset
from tacit.data.partition import Partition
from tacit.study.run import Run
from tacit.study.texts import plain

DRAWN = 100  # clients; nobody looks at more


@dataclass(frozen=True)
class Portrait:
    """One data set divided once: how many samples of each label every client trains and tests on."""

    dataset: str
    split: str
    seed: int
    clients: tuple[str, ...]
    labels: tuple[str, ...]
    train: tuple[tuple[int, ...], ...]  # a row per client, a column per label
    test: tuple[tuple[int, ...], ...]
    noise: tuple[float, ...]
    left_out: int = 0  # clients that are not drawn

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Portrait:
        return cls(**{key: _tuples(value) for key, value in saved.items()})


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


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
