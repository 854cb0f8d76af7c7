"""A study: settings, any of which may be a list; the product of the lists is run.

>>> study = Study("demo", algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}], seed=[0, 1])
>>> [run.algorithm for run in study.runs()][:3]
[FedAvg(weights='samples'), FedAvg(weights='samples'), FedProx(weights='samples', mu=0.1)]
>>> len(study.runs())
6
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tacit.core.errors import StudyError, shown
from tacit.core.fields import check_names, field_types
from tacit.core.own_code import own_code
from tacit.core.registry import Registered
from tacit.models.model import Model
from tacit.models.own import is_own, remember
from tacit.study.file import parse_override, read_settings
from tacit.study.question import ask, varied_and_same
from tacit.study.run import Run as Run
from tacit.study.settings import SETTINGS as SETTINGS
from tacit.study.settings import TYPES, expand_runs
from tacit.study.settings import describe as describe
from tacit.study.texts import plain as plain
from tacit.study.values import expand, family_of, native


class Study:
    """A named grid of runs. Settings are those of all kinds of runs; a list is a grid, and so is `{"grid": [...]}`.

    A setting that takes a list itself (`local_epochs: [5, 1, 2]`) wants the second form: `{"grid": [1, [5, 1, 2]]}`.
    """

    def __init__(self, /, name: str = "study", **settings: Any) -> None:
        check_names(settings, SETTINGS, "a study")
        if not isinstance(name, str) or not name.strip(" .") or "/" in name:
            raise StudyError(
                f"name: expected a word that can be a folder's name, got {shown(name)}"
            )
        self.name = name
        if "model" in settings:
            settings["model"] = _name_models(settings["model"])
        given = {key: settings.get(key, item.metadata["default"]) for key, item in SETTINGS.items()}
        try:
            self.settings = {key: native(value) for key, value in given.items()}
            with own_code():
                self._choices = {
                    key: expand(value, TYPES[key], key) for key, value in self.settings.items()
                }
                self._runs = expand_runs(self._choices)  # what makes no sense is said at once
        except RecursionError:
            raise StudyError("a setting of the study holds itself; write it out") from None

    @classmethod
    def from_file(cls, path: str | Path, overrides: Iterable[str] = ()) -> Study:
        """Reads a study file; overrides are `key=value` or `key.field=value`, as on the command line."""
        changed = read_settings(Path(path))
        for text in overrides:
            _override(changed, *parse_override(text))
        return cls(**changed)

    @classmethod
    def of(cls, given: Study | str | Path | Mapping[str, Any]) -> Study:
        """A study from itself, its file or a dict of its settings."""
        if isinstance(given, Study):
            return given
        if isinstance(given, Mapping):
            return cls(**{str(key): value for key, value in given.items()})
        if not isinstance(given, str | Path):
            raise StudyError(
                f"expected a study, its file or a dict of its settings, got {shown(given)}"
            )
        return cls.from_file(given)

    def runs(self) -> list[Run]:
        """Every point of the grid, then the centralised references if asked for."""
        return list(self._runs)

    def to_dict(self) -> dict[str, Any]:
        """All settings, resolved, as plain values."""
        resolved: dict[str, Any] = {"name": self.name}
        for key, choices in self._choices.items():
            points = [plain(choice) for choice in choices]
            resolved[key] = points[0] if len(points) == 1 else {"grid": points}
        return resolved

    def to_yaml(self) -> str:
        """The study as a file."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def question(self) -> str:
        """What the study asks, in a sentence."""
        return ask(self._runs)

    def _repr_html_(self) -> str:
        """In a notebook: the question, and what varies and what does not."""
        varied, same = varied_and_same(self._runs)
        rows = [(key, f"<b>{html.escape(text)}</b>") for key, text in varied]
        rows += [(key, html.escape(text)) for key, text in same]
        cells = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td>{text}</td></tr>" for key, text in rows
        )
        return f"<p><b>{html.escape(self.question())}</b></p><table>{cells}</table>"

    def __repr__(self) -> str:
        given = {
            key: value
            for key, value in self.settings.items()
            if value != SETTINGS[key].metadata["default"]
        }
        return f"Study({', '.join([repr(self.name), *(f'{key}={plain(value)!r}' for key, value in given.items())])})"


def _name_models(value: Any) -> Any:
    """Models that are Python objects, as models that are named; their weights are those of this moment."""
    if is_own(value):
        return Model.build(value)
    if isinstance(value, list | tuple):
        return [_name_models(item) for item in value]
    if isinstance(value, Mapping) and "grid" in value:
        return {"grid": _name_models(value["grid"])}
    if isinstance(value, Mapping) and is_own(value.get("path")):
        return {**value, "path": remember(value["path"])}
    return value


def _override(settings: dict[str, Any], key: str, value: Any) -> None:
    head, dot, inner = key.partition(".")
    if not dot:
        settings[key] = value
        return
    check_names({head: value}, SETTINGS, "a study")
    spec = plain(settings.get(head, SETTINGS[head].metadata["default"]))
    family, several = family_of(TYPES[head])
    if family is None:
        raise StudyError(f"{key}: {head} has no settings of its own; give it whole, {head}=...")
    if "." in inner:
        raise StudyError(
            f"{key}: expected one dot, as in optimiser.lr; give {head} whole, {head}={{...}}"
        )
    if isinstance(spec, list) or spec is None or (isinstance(spec, dict) and set(spec) == {"grid"}):
        kind = (
            "a list of stages"
            if several
            else "a list in this study"
            if spec
            else "nothing in this study"
        )
        raise StudyError(
            f"{key}: {head} is {kind}; give it whole, {head}={_example(family, spec, inner, value)}"
        )
    spec = {family.key: spec} if not isinstance(spec, dict) else dict(spec)
    settings[head] = {**spec, inner: value}


def _example(family: type[Registered], spec: Any, inner: str, value: Any) -> str:
    """A whole setting, for a message to someone who named a field of it; of a method in the study, if one fits."""
    owners = [name for name, member in family.known().items() if inner in field_types(member)]
    owner = next((name for name in sorted(owners, key=lambda name: name not in str(spec))), "...")
    return f"{{{family.key}: {owner}, {inner}: {plain(value)}}}"


def local_work(run: Run) -> str:
    """Tells what clients do before anything is fused: the same for runs that differ in their fusion only."""
    return run.shared_work() or ""
