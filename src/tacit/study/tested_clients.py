"""Which clients a round tests and records."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.study.run import Run

ALL_TESTED = 100  # up to so many clients, a round tests all; of more, those that take part in it


def is_crowd(run: Run) -> bool:
    """Whether a round tests and records only the clients that take part in it."""
    return run.clients > ALL_TESTED


def tested_clients(run: Run, chosen: Sequence[int]) -> list[int]:
    """The clients that a round tests and records, given those chosen for it.

    The chosen ones include those whose replies were lost. With very many clients not all are
    tested, so that a round's cost does not grow with their number.
    """
    return sorted(set(chosen)) if is_crowd(run) else list(range(run.clients))
