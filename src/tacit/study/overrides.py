"""Settings that replace those of a study's file: `rounds=5`, or `optimiser.lr=0.1` for a field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.core.errors import StudyError
from tacit.core.fields import check_names, field_types
from tacit.core.registry import Registered
from tacit.study.settings import SETTINGS, TYPES
from tacit.study.texts import plain
from tacit.study.values import family_of


def override(settings: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The settings with another value for a setting, or for a field of a method: `optimiser.lr`."""
    name, dot, field = key.partition(".")
    if not dot:
        return {**settings, key: value}
    check_names({name: value}, SETTINGS, "a study")
    family, takes_stages = family_of(TYPES[name])
    if family is None:
        raise StudyError(f"{key}: {name} has no settings of its own; write {name}=...")
    if "." in field:
        raise StudyError(
            f"{key}: expected one dot, as in optimiser.lr; write all of it: {name}={{...}}"
        )
    spec = plain(settings.get(name, SETTINGS[name].metadata["default"]))
    if _is_no_single_method(spec):
        kind = "a list of stages" if takes_stages else _kind_in_study(spec)
        example = _example(family, spec, field, value)
        raise StudyError(f"{key}: {name} is {kind}; write all of it: {name}={example}")
    if not isinstance(spec, dict):
        spec = {family.key: spec}
    return {**settings, name: {**spec, field: value}}


def _is_no_single_method(spec: Any) -> bool:
    is_grid = isinstance(spec, dict) and set(spec) == {"grid"}
    return is_grid or spec is None or isinstance(spec, list)


def _kind_in_study(spec: Any) -> str:
    return "a list in this study" if spec else "not set in this study"


def _example(family: type[Registered], spec: Any, field: str, value: Any) -> str:
    """The setting written out, for somebody who named a field of it.

    It is that of a method in the study, if one there has the field.
    """
    owners = [name for name, member in family.known().items() if field in field_types(member)]
    in_study = [name for name in owners if name in str(spec)]
    owner = next(iter(in_study or owners), "...")
    return f"{{{family.key}: {owner}, {field}: {plain(value)}}}"
