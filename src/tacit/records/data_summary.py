"""What a report has to know of a study's data, as data.json keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError, StudyError
from tacit.core.fields import conform, field_types
from tacit.core.files import read_at_most, replacing

FILE = "data.json"
LARGEST = 64 << 20  # bytes


@dataclass(frozen=True)
class DatasetSummary:
    """One data set, and what a model that has learnt nothing is worth on it."""

    name: str
    rows: int  # to train on
    test_rows: int
    labels: tuple[str, ...]
    counts: tuple[int, ...]  # training rows of each class
    test_counts: tuple[int, ...]
    positive: str | None  # the positive one of two classes
    guess: str  # what the baseline says of every row
    baseline: Mapping[str, float | None]  # its metrics on the test set
    left_out: str | None = None  # the client whose rows are tested on

    def __post_init__(self) -> None:
        if self.positive is not None and (
            len(self.labels) != 2 or self.positive not in self.labels
        ):
            raise StudyError(f"positive: expected one of two labels, got {self.positive}")


@dataclass(frozen=True)
class DataSummary:
    """All data sets of a study, and the metric that decides."""

    metric: str
    reason: str  # why this one
    datasets: tuple[DatasetSummary, ...] = ()
    dataset_of: Mapping[str, int] = field(default_factory=dict)  # run -> the data set's position

    def write(self, folder: Path) -> None:
        with replacing(folder / FILE) as file:
            json.dump(asdict(self), file, indent=1, allow_nan=False)

    @classmethod
    def read(cls, folder: Path) -> DataSummary | None:
        """None where a study has left no such file."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            summary: DataSummary = _from_json(cls, json.loads(read_at_most(path, LARGEST)))
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            StudyError,
        ):
            raise DataError(f"{path} is damaged; resume the study to repair it") from None
        return summary

    def __post_init__(self) -> None:
        positions = range(len(self.datasets))
        if not all(position in positions for position in self.dataset_of.values()):
            raise StudyError("dataset_of: names a data set that is not there")

    def of(self, run: str) -> DatasetSummary | None:
        """The data set of this run."""
        position = self.dataset_of.get(run)
        return None if position is None else self.datasets[position]


def _from_json(kind: Any, content: Mapping[str, Any]) -> Any:
    """A dataclass from JSON, each value of the type that its field has."""
    values: dict[str, Any] = {}
    for name, annotation in field_types(kind).items():
        if name == "datasets":
            values[name] = tuple(_from_json(DatasetSummary, entry) for entry in content[name])
        elif name in content:
            values[name] = conform(content[name], annotation, name)
    return kind(**values)
