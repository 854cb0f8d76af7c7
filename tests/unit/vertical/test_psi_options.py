"""Options that make no sense are refused before anybody is called."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tacit
from tacit.core.errors import StudyError


@pytest.mark.parametrize("patience", ["soon", 0, -1, math.nan, math.inf])
def test_patience_is_a_number_of_seconds(patience: Any) -> None:
    with pytest.raises(StudyError, match="patience: expected"):
        tacit.psi(["1"], "nin", party="alice", consortium="nowhere", patience=patience)


def test_a_limit_is_one_partys_own() -> None:
    with pytest.raises(StudyError, match="name yourself"):
        tacit.psi({"alice": ["1"], "bob": ["1"]}, "nin", most=1)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"group": "best"}, "group"), ({"spelling": {"case": "upper"}}, "case")],
)
def test_an_error_names_the_option_that_is_wrong(options: Any, parameter: str) -> None:
    with pytest.raises(StudyError) as refused:
        tacit.psi({"alice": ["1"], "bob": ["1"]}, "nin", **options)
    assert refused.value.parameters == (parameter,)
