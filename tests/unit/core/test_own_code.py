"""What goes wrong in code of the user's is said in one line."""

from __future__ import annotations

import pytest

from tacit.core.errors import StudyError
from tacit.core.own_code import own_code


class OutOfMemoryError(RuntimeError):
    """Named as the one of torch."""


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OutOfMemoryError("CUDA"), RuntimeError("can't allocate 9 bytes")],
)
def test_too_little_memory_is_called_that(error: Exception) -> None:
    @own_code()
    def work() -> None:
        raise error

    with pytest.raises(StudyError, match="not enough memory for this study"):
        work()
