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
from tacit.core.fields import check_names
from tacit.core.own_code import own_code
from tacit.core.registry import Registered
from tacit.models.own import is_own, remember
from tacit.study.file import DATA_SETTINGS, parse_override, read_settings
from tacit.study.overrides import override
from tacit.study.own_data import name_data
from tacit.study.question import ask, varied_and_same
from tacit.study.run import Run as Run
from tacit.study.settings import SETTING_FAMILIES, TYPES, expand_runs
from tacit.study.settings import SETTINGS as SETTINGS
from tacit.study.settings import describe as describe
from tacit.study.texts import plain as plain
from tacit.study.values import expand, native


class Study:
    """A named grid of runs. Settings are those of all kinds of runs; a list is a grid.

    A setting that takes a list itself (`local_epochs: [5, 1, 2]`) has another form for its grid:
    `{"grid": [1, [5, 1, 2]]}`.
    """

    def __init__(self, /, name: str = "study", **settings: Any) -> None:
        check_names(settings, SETTINGS, "a study")
        _check_study_name(name)
        self.name = name
        for key, family in SETTING_FAMILIES.items():
            if key in settings and family.takes_objects:
                settings[key] = _name_objects(settings[key], family)
        for key in DATA_SETTINGS:
            if key in settings:
                settings[key] = name_data(settings[key], key)
        try:
            self.settings = _complete(settings)
            with own_code():
                self._choices = {
                    key: expand(value, TYPES[key], key) for key, value in self.settings.items()
                }
                self._runs = expand_runs(self._choices)  # what makes no sense is said at once
        except RecursionError:
            raise StudyError("a setting of the study contains itself; write it out") from None

    @classmethod
    def from_file(cls, path: str | Path, overrides: Iterable[str] = ()) -> Study:
        """Reads a study file.

        Overrides are `key=value` or `key.field=value`, as on the command line.
        """
        settings = read_settings(Path(path))
        for text in overrides:
            key, value = parse_override(text)
            settings = override(settings, key, value)
        return cls(**settings)

    @classmethod
    def of(cls, study: Study | str | Path | Mapping[str, Any]) -> Study:
        """A study from itself, its file or a dict of its settings."""
        if isinstance(study, Study):
            return study
        if isinstance(study, Mapping):
            return cls(**{str(key): value for key, value in study.items()})
        if not isinstance(study, str | Path):
            raise StudyError(
                f"expected a study, its file or a dict of its settings, got {shown(study)}"
            )
        return cls.from_file(study)

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
        varied, constant = varied_and_same(self._runs)
        rows = [_html_row(name, f"<b>{html.escape(text)}</b>") for name, text in varied]
        rows += [_html_row(name, html.escape(text)) for name, text in constant]
        question = html.escape(self.question())
        return f"<p><b>{question}</b></p><table>{''.join(rows)}</table>"

    def __repr__(self) -> str:
        arguments = [repr(self.name)]
        for key, value in self.settings.items():
            if value != SETTINGS[key].metadata["default"]:
                arguments.append(f"{key}={plain(value)!r}")
        return f"Study({', '.join(arguments)})"


def _check_study_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip(" .") or "/" in name:
        raise StudyError(f"name: expected a word that can be a folder's name, got {shown(name)}")


def _complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a study in their order, at its default where none is given."""
    values = {}
    for key, item in SETTINGS.items():
        value = settings.get(key, item.metadata["default"])
        values[key] = native(value)
    return values


def _name_objects(value: Any, family: type[Registered]) -> Any:
    """Turns Python objects, such as models with the weights that they have now, into named ones."""
    if is_own(value):
        return family.build(value)
    if isinstance(value, list | tuple):
        return [_name_objects(item, family) for item in value]
    if isinstance(value, Mapping) and "grid" in value:
        return {"grid": _name_objects(value["grid"], family)}
    if isinstance(value, Mapping) and is_own(value.get("path")):
        return {**value, "path": remember(value["path"])}
    return value


def _html_row(name: str, cell: str) -> str:
    return f"<tr><th style='text-align:left'>{name}</th><td>{cell}</td></tr>"
