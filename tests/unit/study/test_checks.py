"""What a study may have, and what its author is told of it."""

from __future__ import annotations

import pytest

from tacit.core.errors import StudyError
from tacit.study.checks import cautions
from tacit.study.study import Study


def test_a_caution_about_several_runs_is_said_once() -> None:
    (caution,) = cautions(Study(combiner="trimmed_mean", seed=[0, 1]).runs())
    assert caution.startswith("trimmed_mean drops")


def test_a_target_accuracy_is_a_share() -> None:
    assert Study(target_accuracy=1.0).runs()[0].target_accuracy == 1.0
    with pytest.raises(StudyError, match="target_accuracy: expected a share"):
        Study(target_accuracy=1.5)
