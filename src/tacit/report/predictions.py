"""What a run's model says of new rows, which are encoded as the training rows were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError, StudyError
from tacit.core.files import expanded
from tacit.data.encoding import Encoding, Target
from tacit.data.readers import read_table
from tacit.report.study_tables import StudyTables
from tacit.report.trained_models import load_model
from tacit.training.losses import Loss, Outcomes

ROWS_AT_ONCE = 1024
NewRows = pd.DataFrame | NDArray[Any] | str | Path  # a table, an array, or a table's file


@dataclass(frozen=True)
class Predictions:
    """The rows, and what a model predicts for them."""

    frame: pd.DataFrame
    target: Target
    predicted: Tensor  # (n, classes) probabilities; in a regression (n, 1), standardised
    positive: int | None  # the positive one of two classes

    def probabilities(self) -> pd.DataFrame:
        """A column per class, named by its label."""
        if not self.target.labels:
            raise StudyError(
                f"{self.target.name} is a number, so there are no probabilities; leave out proba",
                parameters=("proba",),
            )
        labels = self.target.label_values
        return pd.DataFrame(self.predicted.numpy(), index=self.frame.index, columns=labels)

    def values(self, threshold: float | None = None) -> pd.Series[Any]:
        """Labels as in the table, or numbers in its units.

        With a `threshold`, the positive one of two classes is predicted from this probability on.
        """
        scores = self.predicted
        if threshold is not None:
            scores = self._thresholded(threshold)
        values: Any = self.target.decode(scores) if len(scores) else []
        return pd.Series(values, index=self.frame.index, name=self.target.name)

    def _thresholded(self, threshold: float) -> Tensor:
        """Scores of which the positive class's is the larger one from the threshold on."""
        if self.positive is None and len(self.target.labels) == 2:
            raise StudyError(
                "data.json does not say which class is positive; resume the study, which writes it"
                " again",
                parameters=("threshold",),
            )
        if self.positive is None:
            raise StudyError(
                f"a threshold divides two classes, and {self.target.name} has"
                f" {len(self.target.labels) or 'no'} classes; leave it out",
                parameters=("threshold",),
            )
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise StudyError(
                f"threshold: expected a probability from 0 to 1, got {threshold!r}",
                parameters=("threshold",),
            )
        is_positive = (self.predicted[:, self.positive].double() >= threshold).float()
        scores = torch.empty_like(self.predicted)
        scores[:, self.positive] = is_positive
        scores[:, 1 - self.positive] = 1 - is_positive
        return scores


def predict(tables: StudyTables, run: str, rows: NewRows, client: int | str | None) -> Predictions:
    """What a run's model says of new rows; with `client`, the model that this client uses."""
    tables.check_run(run)
    if client is None and not tables.runs[run].client_algorithm.sends_updates:
        name = tables.runs[run].client_algorithm.name
        raise StudyError(
            f"{name} has no global model, since clients train alone; name the client whose model"
            " is to predict",
            parameters=("client",),
        )
    with _fitting(run):
        module = load_model(tables, run, client, None)
    encoding = tables.encoding_of(run)
    if encoding is None or encoding.target is None:
        raise StudyError(
            f"{run} has no encoding that says what to predict: its data are not a table (then use"
            f" results.model({run!r})), or encoding.json is damaged (resume the study)"
        )
    frame = _as_frame(rows, [column.name for column in encoding.columns])
    outputs = [torch.zeros(0, encoding.target.outputs)]
    if len(frame):
        with torch.no_grad(), _fitting(run):
            outputs = [module(chunk) for chunk in _encode(encoding, frame).split(ROWS_AT_ONCE)]
    predicted = _meaning(torch.cat(outputs), encoding.target, tables.runs[run].loss)
    lost = int((~predicted.isfinite().all(1)).sum())
    if lost:
        raise StudyError(
            f"{run} answers {lost:,} of {len(frame):,} rows with numbers that are not finite: its"
            " model file is damaged, or these rows are far from those that it learnt from"
        )
    return Predictions(frame, encoding.target, predicted, _positive(tables, run, encoding.target))


@contextmanager
def _fitting(run: str) -> Iterator[None]:
    """Says so where a model cannot take what the encoding makes."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{run}: its model does not fit its encoding ({reason}); encoding.json, study.yaml or"
            " the model's file is another one, or damaged"
        ) from error


def _encode(encoding: Encoding, frame: pd.DataFrame) -> Tensor:
    """The rows as the model takes them; what errors say of training is left out."""
    try:
        return encoding.apply(frame)
    except DataError as error:
        text = str(error)
        for remedy in (", or list the column under drop", ", or list it under drop"):
            text = text.replace(remedy, "")
        raise DataError(text) from None


def _meaning(output: Tensor, target: Target, loss: Loss) -> Tensor:
    """What an output says: probabilities, or standardised numbers. # (n, outputs)

    Under some losses it means something else, such as the logarithm of the number.
    """
    if target.task != "regression":
        return output.softmax(-1)
    outcomes = Outcomes(centre=target.centre, spread=target.spread)
    return loss.fitted(outcomes).predicted(output)[:, None]


def _positive(tables: StudyTables, run: str, target: Target) -> int | None:
    if len(target.labels) != 2:
        return None
    dataset = tables.data.of(run) if tables.data else None
    if dataset is None or dataset.positive not in target.labels:
        return None
    return target.labels.index(dataset.positive)


def _as_frame(rows: NewRows, names: list[str]) -> pd.DataFrame:
    """The rows as a data frame; an array's columns have these names."""
    if isinstance(rows, str | Path):
        frame: pd.DataFrame = read_table(expanded(rows))
        return frame
    if isinstance(rows, pd.DataFrame):
        return rows
    try:
        return pd.DataFrame(np.asarray(rows), columns=names)
    except ValueError:
        shape = tuple(getattr(rows, "shape", ()))
        raise StudyError(
            f"expected a data frame, a table's file, or an array with the {len(names)} columns"
            f" {', '.join(names[:10])}; got the shape {shape}"
        ) from None
