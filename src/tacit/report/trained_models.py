"""The models that a study's runs ended with, and what they predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.core.errors import StudyError, suggest
from tacit.data.datasets import data_folder
from tacit.data.encoding import Target
from tacit.models.model import make_module
from tacit.records import checkpoint
from tacit.report.study_tables import StudyTables
from tacit.study.tested_clients import ALL_TESTED
from tacit.training.losses import Loss, Outcomes

ROWS_AT_ONCE = 1024


def load_model(
    tables: StudyTables, run: str, client: int | str | None, data: str | None
) -> nn.Module:
    """The global model of a run, or that of a client where the method gives it one of its own."""
    tables.check_run(run)
    settings = tables.runs[run]
    path = _model_path(tables, run, _client_number(tables, run, client))
    shape, outputs = _sizes(tables, run, data)
    module = make_module(settings.model, shape, outputs, settings.seed)
    return settings.rebuilt(module, checkpoint.load(path), run).eval()


def predict(
    tables: StudyTables, run: str, frame: pd.DataFrame | NDArray[Any], client: int | str | None
) -> pd.Series[Any]:
    """What a run's model says of new rows, which are encoded as the training rows were."""
    module = load_model(tables, run, client, None)
    encoding = tables.encoding_of(run)
    if encoding is None or encoding.target is None:
        raise StudyError(
            f"{run} has no encoding, since its data are not a table; use results.model({run!r})"
        )
    if not isinstance(frame, pd.DataFrame):  # an array, as the study may have been given
        frame = _as_frame(frame, [column.name for column in encoding.columns])
    predictions: Any = []
    if len(frame):
        with torch.no_grad():
            outputs = [module(rows) for rows in encoding.apply(frame).split(ROWS_AT_ONCE)]
        numbers = _decodable(torch.cat(outputs), encoding.target, tables.runs[run].loss)
        predictions = encoding.target.decode(numbers)
    return pd.Series(predictions, index=frame.index, name=encoding.target.name)


def _decodable(output: Tensor, target: Target, loss: Loss) -> Tensor:
    """What the target decodes: scores of the classes, or standardised numbers. # (n, outputs)

    A model's output may mean something else, such as the logarithm of the number.
    """
    if target.task != "regression":
        return output
    outcomes = Outcomes(centre=target.centre, spread=target.spread)
    return loss.fitted(outcomes).predicted(output)[:, None]


def _as_frame(samples: Any, names: list[str]) -> pd.DataFrame:
    """An array of samples as a data frame with these columns."""
    try:
        return pd.DataFrame(np.asarray(samples), columns=names)
    except ValueError:
        shape = tuple(getattr(samples, "shape", ()))
        raise StudyError(
            f"expected a data frame, or an array with the {len(names)} columns"
            f" {', '.join(names[:10])}; got the shape {shape}"
        ) from None


def _client_number(tables: StudyTables, run: str, client: int | str | None) -> int | None:
    if not isinstance(client, str):
        return client
    names = tables.client_names(run)
    if client not in names:
        raise StudyError(f"no client is called {client!r}; {suggest(client, names)}")
    return names.index(client)


def _model_path(tables: StudyTables, run: str, client: int | None) -> Path:
    """The file of a run's model, which must be there."""
    settings = tables.runs[run]
    name = f"{run}.pt"
    absence = "the run has not finished (resume it), or its file was deleted"
    if client is not None:
        if not (0 <= client < settings.clients and settings.keeps_client_models):
            advice = "leave out client for the global one"
            raise StudyError(f"{run} has no model of its own for client {client}; {advice}")
        name = f"{run}-client-{client}.pt"
        if tables.is_crowd(run):
            absence += f"; of more than {ALL_TESTED} clients, only the last round's have files"
    path = tables.folder / "models" / name
    if not path.exists():
        raise StudyError(f"{path} is not there: {absence}")
    return path


def _sizes(tables: StudyTables, run: str, data: str | None) -> tuple[tuple[int, ...], int]:
    """A sample's shape and the number of outputs, from the encoding or else from the data."""
    encoding = tables.encoding_of(run)
    if encoding and encoding.target:
        return (len(encoding.names),), encoding.target.outputs
    dataset = tables.runs[run].dataset.load(data_folder(data))
    return tuple(dataset.x.shape[1:]), dataset.outputs
