"""The settings of a study, which are those of all kinds of runs, and the runs that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import Any

from tacit.core.errors import StudyError
from tacit.core.registry import Registered, import_folder
from tacit.study.grid import make_points
from tacit.study.run import Run
from tacit.study.setting_order import USUAL, order_kinds, order_settings
from tacit.study.texts import plain
from tacit.study.values import defaults_of, family_of, types_of


def known_kinds() -> list[type[Run]]:
    """Every kind of run, the usual one first, then in alphabetical order."""
    import_folder("tacit.study.kinds")
    return [Run.kinds[name] for name in order_kinds(list(Run.kinds))]


def _in_order(kinds: Sequence[type[Run]]) -> dict[str, Field[Any]]:
    """The settings of these kinds, each after the setting that it names."""
    settings: dict[str, Field[Any]] = {}
    placed = []
    for kind in kinds:
        for item in fields(kind):
            settings.setdefault(item.name, item)
        placed.append([(item.name, item.metadata["after"]) for item in fields(kind)])
    return {name: settings[name] for name in order_settings(placed)}


def _joined(
    kinds: Sequence[type[Run]], of_kind: Callable[[type[Run]], dict[str, Any]]
) -> dict[str, Any]:
    """What each kind says of its settings, in the order of a study's."""
    by_name: dict[str, Any] = {}
    for kind in kinds:
        by_name |= of_kind(kind)
    return {name: by_name[name] for name in SETTINGS}


def _families(types: Mapping[str, Any]) -> dict[str, type[Registered]]:
    """The settings that take methods of a family, and which family that is."""
    families = {}
    for name, annotation in types.items():
        family, _ = family_of(annotation)
        if family is not None:
            families[name] = family
    return families


KINDS = known_kinds()
SETTINGS = _in_order(KINDS)
TYPES = _joined(KINDS, types_of)
METHODS = frozenset(kind.method_setting for kind in KINDS)  # one of them names a run
SETTING_FAMILIES = _families(TYPES)


def expand_runs(choices: Mapping[str, Sequence[Any]]) -> list[Run]:
    """A run for every point of the product of the choices, then the further runs that they ask for.

    Equal runs are listed once.
    """
    points = make_points(choices, _make_point, plain)
    runs = [run for run, _ in points]
    for kind in KINDS:
        for run, settings in points:
            runs += kind.further(run, settings)
    different = {str(describe(run)): run for run in runs}
    return list(different.values())


def make_run(settings: Mapping[str, Any]) -> Run:
    """The run with these settings, of the kind that claims them."""
    claiming = (kind for kind in KINDS if kind.claims(settings))
    kind = next(claiming, Run.kinds[USUAL])
    names = {item.name for item in fields(kind)}
    run = kind(**{name: settings[name] for name in names})
    for name in SETTINGS:
        if name not in names | kind.replaces:
            _check_unused(run, name, settings[name])
    return run


@cache
def defaults() -> dict[str, Any]:
    """Every setting at its default."""
    return _joined(KINDS, defaults_of)


def value_of(run: Run, name: str) -> Any:
    """A setting of the run; if it is one of another kind, its default."""
    return getattr(run, name, defaults()[name])


def describe(run: Run) -> dict[str, Any]:
    """The run as plain values."""
    return {name: plain(value_of(run, name)) for name in SETTINGS}


def _make_point(**settings: Any) -> tuple[Run, dict[str, Any]]:
    return make_run(settings), settings


def _check_unused(run: Run, name: str, value: Any) -> None:
    """Refuses another kind's setting that is not at its default."""
    item = SETTINGS[name]
    default = defaults()[name]
    if isinstance(value, Registered) and isinstance(default, Registered):
        differs = value.name != default.name  # whatever its own settings are
    else:
        differs = value != default
    if differs and not item.metadata["asks"]:
        raise StudyError(run.refusal(name, item.metadata["elsewhere"]))
