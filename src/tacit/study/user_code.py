"""Which methods, models and data of a run are the user's own code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core.registry import Registered
from tacit.study.run import Run

IMPORT_PATH = re.compile(r"[\w.-]+:[\w.]+(#\w+)?")
RunWithId = tuple[str, Run]  # a run and its id


def may_name_code(settings: Any) -> bool:
    """Whether a text among these settings may be an import path, such as `my_models:Net`."""
    if isinstance(settings, str):
        return IMPORT_PATH.fullmatch(settings) is not None
    if isinstance(settings, Mapping):
        return any(may_name_code(value) for value in settings.values())
    if isinstance(settings, list | tuple):
        return any(may_name_code(value) for value in settings)
    return False


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
