"""How a table became numbers: stated, saved as JSON, and applied again to new rows.

It is fitted on the training rows alone. Here these are everybody's rows together; parties that keep their tables to
themselves would have to agree on an encoding, or compute one privately.

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tacit.core.errors import DataError, StudyError, suggest
from tacit.core.fields import conform, field_types
from tacit.core.files import replacing
from tacit.data.features import KINDS, Column, Date, Number
from tacit.data.recognition import recognise

Task = Literal["classification", "regression"]
LabelType = Literal["text", "integer", "number", "boolean"]


@dataclass(frozen=True)
class Target:
    """The column to predict: its classes, or the centre and spread of its numbers in the training rows."""

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
        """What a model's output says: labels as they were in the table, or numbers in its units. # (n, outputs)"""
        if self.task == "regression":
            return (output[:, 0].double() * self.spread + self.centre).tolist()
        originals = [_original(label, self.type) for label in self.labels]
        return [originals[place] for place in output.argmax(1).tolist()]


@dataclass(frozen=True)
class Encoding:
    """The columns in order, each with what it learnt; the target; and whose rows they were, if the table says so."""

    columns: tuple[Column, ...]
    target: Target | None = None
    client: str | None = None  # the column that says whose row it is
    clients: tuple[str, ...] = ()  # their names
    notes: tuple[str, ...] = field(
        default=()
    )  # what a reader should know, such as rows that were left out

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        dates: Mapping[str, str] | None = None,
        categories: Sequence[str] = (),
        **about: Any,
    ) -> Encoding:
        """Learns from the training rows; the frame holds features only. `about` is the target, the clients, notes."""
        stated = dict(dates or {})
        for name in (*stated, *categories):
            if name not in map(str, frame.columns):
                raise DataError(
                    f"there is no column {name!r} to encode; {suggest(name, map(str, frame.columns))}"
                )
        columns, refused = [], []
        for label, values in frame.items():
            name = str(label)
            try:
                kind = recognise(name, values, stated.get(name), name in categories)
                learn: dict[str, Any] = {"format": stated.get(name)} if kind is Date else {}
                columns.append(kind.fit(name, values, **learn))
            except DataError as error:
                refused.append(str(error))
        if refused:  # all of them at once, so that they can be mended at once
            raise DataError("; ".join(refused))
        return cls(tuple(columns), **about)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(name for column in self.columns for name in column.names)

    def apply(self, frame: pd.DataFrame) -> Tensor:
        """The rows as a model takes them; columns that the encoding does not know are left out. # (n, F)"""
        if not isinstance(frame, pd.DataFrame) or frame.columns.has_duplicates:
            came = (
                "two columns of one name"
                if isinstance(frame, pd.DataFrame)
                else type(frame).__name__
            )
            raise DataError(
                f"expected rows as a pandas DataFrame with one column per name, got {came}"
            )
        known = {str(name): name for name in frame.columns}
        for column in self.columns:
            if column.name not in known:
                raise DataError(
                    f"the rows have no column {column.name!r}; {suggest(column.name, known)}"
                )
        parts = [column.apply(frame[known[column.name]]) for column in self.columns]
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            x = np.concatenate(parts, 1).astype(np.float32)
        if (odd := ~np.isfinite(x).all(0)).any():
            raise DataError(
                f"{self.names[odd.argmax()]} holds numbers too large for this encoding; mend them"
            )
        return torch.from_numpy(x)

    def moments(self) -> tuple[Tensor, Tensor]:
        """What was subtracted from each feature, and what it was divided by. # (F,), (F,)"""
        pairs = [
            (column.centre, column.spread)
            if isinstance(column, Number | Date) and not place
            else (0.0, 1.0)
            for column in self.columns
            for place in range(len(column.names))
        ]
        centre, spread = torch.tensor(pairs, dtype=torch.float32).T.contiguous()
        return centre, spread

    def describe(self) -> list[dict[str, str]]:
        """A row per column, in plain words."""
        return [
            {"column": c.name, "kind": c.kind, "becomes": c.becomes, "missing": c.missing}
            for c in self.columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """The encoding as JSON can hold it."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return {**asdict(self), "columns": columns}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Encoding:
        """Undoes `to_dict`."""
        columns = tuple(_made(KINDS[one["kind"]], one) for one in found["columns"])
        target = None if found.get("target") is None else _made(Target, found["target"])
        names = [tuple(map(str, found.get(key, ()))) for key in ("clients", "notes")]
        return cls(columns, target, found.get("client"), *names)

    def save(self, path: str | Path) -> None:
        """Writes the encoding as JSON."""
        with replacing(Path(path)) as file:
            file.write(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Encoding:
        """Reads what `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StudyError) as error:
            what = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise DataError(f"{path} holds no encoding, or is damaged: {what}") from None


def _made(kind: Any, found: Mapping[str, Any]) -> Any:
    """A dataclass from JSON, each value of the type that its field has."""
    types = field_types(kind)
    return kind(
        **{
            name: conform(found[name], types[name], f"{kind.__name__}.{name}")
            for name in types
            if name in found
        }
    )


def _original(label: str, kind: LabelType) -> Any:
    if kind == "boolean":
        return label == "True"
    return int(label) if kind == "integer" else float(label) if kind == "number" else label
