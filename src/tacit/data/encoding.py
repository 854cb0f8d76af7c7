"""How a table became numbers: stated, saved as JSON, and applied again to new rows.

It is fitted on the training rows alone. Here these are the rows of all clients together; parties
that keep their tables to themselves would have to agree on an encoding, or compute one privately.

>>> import pandas as pd
>>> rows = pd.DataFrame({"age": [30.0, None, 50.0], "region": ["north", "south", "north"]})
>>> encoding = Encoding.fit(rows)
>>> encoding.names
('age', 'age is missing', 'region = north', 'region = south')
>>> encoding.apply(rows)[1]
tensor([0., 1., 0., 1.])
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tacit.core.errors import DataError, StudyError, suggest
from tacit.core.fields import conform, field_types
from tacit.core.files import read_at_most, replacing
from tacit.data.features import KINDS, Column, Date, Number
from tacit.data.recognition import recognise

LARGEST = 64 << 20  # bytes of its file
Task = Literal["classification", "regression"]
LabelType = Literal["text", "integer", "number", "boolean"]


@dataclass(frozen=True)
class Target:
    """The column to predict.

    It has classes, or the centre and spread of its numbers in the training rows.
    """

    name: str
    task: Task = "classification"
    labels: tuple[str, ...] = ()
    type: LabelType = "text"  # of the labels, as they were in the table
    centre: float = 0.0
    spread: float = 1.0

    @property
    def outputs(self) -> int:
        """How many numbers a model gives per row."""
        return len(self.labels) or 1

    def decode(self, output: Tensor) -> list[Any]:
        """What a model's output (n, outputs) says: labels or numbers, as they are in the table."""
        if self.task == "regression":
            numbers = output[:, 0].double() * self.spread + self.centre
            return numbers.tolist()
        originals = self.label_values
        return [originals[code] for code in output.argmax(1).tolist()]

    @property
    def label_values(self) -> list[Any]:
        """The labels as they are in the table."""
        return [_original(label, self.type) for label in self.labels]


@dataclass(frozen=True)
class Encoding:
    """The columns in order, each with what it learnt, the target, and the clients, if any."""

    columns: tuple[Column, ...]
    target: Target | None = None
    client: str | None = None  # the column that says whose row it is
    clients: tuple[str, ...] = ()  # the clients' names
    notes: tuple[str, ...] = ()  # what a reader should know, such as rows that were left out

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        dates: Mapping[str, str] | None = None,
        categories: Sequence[str] = (),
        target: Target | None = None,
        client: str | None = None,
        clients: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> Encoding:
        """Learns from the training rows; the frame holds features only.

        `dates` has the format of dates that are not ISO, by column.
        """
        columns = _fit_columns(frame, dates or {}, categories)
        return cls(columns, target, client, clients, notes)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        names: list[str] = []
        for column in self.columns:
            names += column.names
        return tuple(names)

    def apply(self, frame: pd.DataFrame) -> Tensor:
        """The rows as a model takes them; columns that the encoding lacks are left out. # (n, F)"""
        _check_frame(frame)
        labels = {str(label): label for label in frame.columns}
        for column in self.columns:
            if column.name not in labels:
                hint = suggest(column.name, labels)
                raise DataError(f"the rows have no column {column.name!r}; {hint}")
        features = [column.apply(frame[labels[column.name]]) for column in self.columns]
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            x = np.concatenate(features, 1).astype(np.float32)
        is_infinite = ~np.isfinite(x).all(0)
        if is_infinite.any():
            name = self.names[is_infinite.argmax()]
            raise DataError(f"{name} holds numbers too large for this encoding; fix them")
        return torch.from_numpy(x)

    def moments(self) -> tuple[Tensor, Tensor]:
        """What was subtracted from each feature, and what it was divided by. # (F,), (F,)"""
        centres: list[float] = []
        spreads: list[float] = []
        for column in self.columns:
            unscaled = len(column.names)
            if isinstance(column, Number | Date):  # their first feature is scaled
                centres.append(column.centre)
                spreads.append(column.spread)
                unscaled -= 1
            centres += [0.0] * unscaled
            spreads += [1.0] * unscaled
        return torch.tensor(centres, dtype=torch.float32), torch.tensor(
            spreads, dtype=torch.float32
        )

    def describe(self) -> list[dict[str, str]]:
        """A row per column, in plain words."""
        rows: list[dict[str, str]] = []
        for column in self.columns:
            row = {"column": column.name, "kind": column.kind}
            row |= {"becomes": column.becomes, "missing": column.missing}
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """The encoding as JSON can hold it."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return {**asdict(self), "columns": columns}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Encoding:
        """Undoes `to_dict`."""
        columns = [_from_json(KINDS[column["kind"]], column) for column in content["columns"]]
        target = content.get("target")
        if target is not None:
            target = _from_json(Target, target)
        clients = [str(name) for name in content.get("clients", ())]
        notes = [str(note) for note in content.get("notes", ())]
        return cls(tuple(columns), target, content.get("client"), tuple(clients), tuple(notes))

    def save(self, path: str | Path) -> None:
        """Writes the encoding as JSON."""
        with replacing(Path(path)) as file:
            file.write(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Encoding:
        """Reads what `save` wrote."""
        try:
            return cls.from_dict(json.loads(read_at_most(path, LARGEST)))
        except RecursionError:
            raise DataError(f"{path} holds no encoding: it is nested too deeply") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StudyError) as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise DataError(f"{path} holds no encoding, or is damaged: {reason}") from None


def _fit_columns(
    frame: pd.DataFrame, formats: Mapping[str, str], categories: Sequence[str]
) -> tuple[Column, ...]:
    names = [str(label) for label in frame.columns]
    for name in (*formats, *categories):
        if name not in names:
            raise DataError(f"there is no column {name!r} to encode; {suggest(name, names)}")
    columns: list[Column] = []
    complaints: list[DataError] = []
    for label, values in frame.items():
        name = str(label)
        try:
            columns.append(_fit_column(name, values, formats.get(name), name in categories))
        except DataError as error:
            complaints.append(error)
    if len(complaints) == 1:
        raise complaints[0]
    if complaints:  # all of them at once, so that they can be fixed at once
        raise DataError(f"{len(complaints)} columns cannot be taken", details=complaints)
    return tuple(columns)


def _fit_column(name: str, values: pd.Series[Any], format: str | None, is_category: bool) -> Column:
    kind = recognise(name, values, format, is_category)
    if kind is Date:
        return Date.fit(name, values, format)
    return kind.fit(name, values)


def _check_frame(frame: Any) -> None:
    wanted = "rows as a pandas DataFrame with one column per name"
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"expected {wanted}, got {type(frame).__name__}")
    if frame.columns.has_duplicates:
        raise DataError(f"expected {wanted}, got two columns of one name")


def _from_json(kind: Any, content: Mapping[str, Any]) -> Any:
    """A dataclass from JSON, each value of the type that its field has."""
    values: dict[str, Any] = {}
    for name, annotation in field_types(kind).items():
        if name in content:
            values[name] = conform(content[name], annotation, f"{kind.__name__}.{name}")
    return kind(**values)


def _original(label: str, kind: LabelType) -> Any:
    """A label as it was in the table."""
    if kind == "boolean":
        return label == "True"
    if kind == "integer":
        return int(label)
    if kind == "number":
        return float(label)
    return label
