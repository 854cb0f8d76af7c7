"""What goes wrong in another process is the same error here."""

from __future__ import annotations

import pickle

import pytest

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.execution.play import Failed


def travelled(error: Exception) -> Exception:
    """The error after its way through a pipe."""
    failed: Failed = pickle.loads(pickle.dumps(Failed.of(error)))
    return failed.error()


@pytest.mark.parametrize("kind", [StudyError, DataError])
def test_an_error_keeps_its_class_text_and_parameters(kind: type[TacitError]) -> None:
    error = travelled(kind("no folder", parameters=("data", "workers")))
    assert type(error) is kind
    assert str(error) == "no folder"
    assert isinstance(error, TacitError)
    assert error.parameters == ("data", "workers")


def test_a_bug_brings_its_traceback() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as bug:
        error = travelled(bug)
    assert type(error) is RuntimeError
    assert str(error).startswith("in a worker:\nTraceback")
    assert "ValueError: a bug" in str(error)
