"""What runs are made of, and what of that is the user's own code."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.core.registry import Registered
from tacit.study.run import Run

Named = tuple[str, Run]  # a run and its id


def guests_of(runs: Sequence[Named]) -> list[str]:
    """The methods and models of these runs that are the user's own, by import path."""
    methods = [f"{type(part).__module__}:{type(part).__qualname__}" for part in parts_of(runs)]
    called = [part.calls for part in parts_of(runs) if part.calls]
    return list(dict.fromkeys([name for name in methods if not name.startswith("tacit.")] + called))


def parts_of(runs: Sequence[Named]) -> list[Registered]:
    """The methods, models and data sources of these runs."""
    values = [value for _, run in runs for value in vars(run).values()]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return [part for part in parts if isinstance(part, Registered)]
