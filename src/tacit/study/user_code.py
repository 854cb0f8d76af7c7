"""Which methods, models and data of a run are the user's own code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.core.registry import Registered
from tacit.study.run import Run

IMPORT_PATH = re.compile(r"[\w.-]+:[\w.]+(#\w+)?")
RunWithId = tuple[str, Run]  # a run and its id


def named_modules(settings: Any) -> set[str]:
    """The modules, or packages, that texts among a study's settings may name.

    >>> sorted(named_modules({"model": "my_models:Net", "split": ["iid", "mine.splits:Odd"]}))
    ['mine', 'my_models']
    """
    if isinstance(settings, str):
        package, _, _ = settings.partition(":")[0].partition(".")
        return {package} if IMPORT_PATH.fullmatch(settings) and package else set()
    values: Iterable[Any] = ()
    if isinstance(settings, Mapping):
        values = settings.values()
    elif isinstance(settings, list | tuple):
        values = settings
    return {module for value in values for module in named_modules(value)}


def user_code_of(runs: Sequence[RunWithId]) -> list[str]:
    """The import paths of the methods and models of these runs that are the user's own."""
    components = components_of(runs)
    classes = [f"{type(item).__module__}:{type(item).__qualname__}" for item in components]
    own_classes = [path for path in classes if not path.startswith("tacit.")]
    called = [item.calls for item in components if item.calls]
    return list(dict.fromkeys(own_classes + called))


def components_of(runs: Sequence[RunWithId]) -> list[Registered]:
    """The methods, models and data sources that these runs consist of."""
    values: list[object] = []
    for _, run in runs:
        for value in vars(run).values():
            values += value if isinstance(value, tuple) else (value,)
    return [value for value in values if isinstance(value, Registered)]
