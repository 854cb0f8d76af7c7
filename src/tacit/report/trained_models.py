"""The models that a study's runs ended with."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from tacit.core.errors import StudyError, suggest
from tacit.data.datasets import data_folder
from tacit.models.model import make_module
from tacit.records import checkpoint
from tacit.report.study_tables import StudyTables
from tacit.study.tested_clients import ALL_TESTED


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
