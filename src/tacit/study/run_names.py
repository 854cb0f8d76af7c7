"""Short names for the runs of a study: just enough to tell them apart."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from tacit.data.tables import Table
from tacit.study.kinds.reference import REFERENCE
from tacit.study.run import Run
from tacit.study.settings import METHODS, SETTINGS, describe
from tacit.study.source_keys import source_key
from tacit.study.texts import short, short_values, text

Label = dict[str, Any]  # by setting, what a run's name says of it

OBJECTIVE = "objective"  # what labels call the loss
TEST = "test"  # the setting of a table that labels name on its own
ALWAYS = ("algorithm", "split")  # in every label
SELF_EXPLANATORY = (
    *ALWAYS,
    "dataset",
    TEST,
    "model",
    "optimiser",
    "combiner",
)  # needs no setting's name


def label_runs(runs: Sequence[Run]) -> list[Label]:
    """For each run, the settings that vary in the study, and always its algorithm and split.

    Methods are short texts.

    >>> from tacit.study.study import Study
    >>> label_runs(Study(algorithm={"name": "fedprox", "mu": [0.1, 1]}).runs())[1]
    {'split': 'iid', 'algorithm': 'fedprox(mu=1)'}
    """
    settings = [_settings_of(run) for run in runs]
    columns = {}
    for key in _varying(runs, settings):
        columns[key] = short_values([values[key] for values in settings])
    if OBJECTIVE in columns:  # the names of losses alone do not tell their weights
        columns[OBJECTIVE] = [short(run.loss) for run in runs]
    labels = []
    for number, run in enumerate(runs):
        label = {key: texts[number] for key, texts in columns.items()}
        labels.append({**label, **run.label})
    return labels


def _settings_of(run: Run) -> Label:
    """The run's settings, its method under `algorithm`, whatever setting names it."""
    settings = describe(run)
    method = settings[run.method_setting]
    settings = {key: value for key, value in settings.items() if _stays(key)}
    settings["dataset"] = {key: value for key, value in settings["dataset"].items() if key != TEST}
    settings = _after(settings, "dataset", {TEST: run.dataset.tested_on})
    settings = {_column(key): value for key, value in settings.items()}
    return {**settings, "algorithm": method}


def _after(settings: Label, before: str, more: Label) -> Label:
    """The settings with more of them behind one of them."""
    ordered: Label = {}
    for key, value in settings.items():
        ordered[key] = value
        if key == before:
            ordered |= more
    return ordered


def _stays(key: str) -> bool:
    return key == "algorithm" or key not in METHODS


def _column(key: str) -> str:
    """What labels call a setting: by its name, unless a figure has that name."""
    label = SETTINGS[key].metadata["label"] if key in SETTINGS else None
    return label or key


def _varying(runs: Sequence[Run], settings: Sequence[Label]) -> list[str]:
    """The settings that labels name. References do not count: they have one client in any case."""
    pairs = zip(runs, settings, strict=True)
    compared = [values for run, values in pairs if not run.is_reference] or settings
    return [key for key in settings[0] if key in ALWAYS or _varies(key, compared)]


def _varies(key: str, settings: Sequence[Label]) -> bool:
    return len({str(values[key]) for values in settings}) > 1


def run_ids(labels: Sequence[Label]) -> list[str]:
    """A unique id per run that can be a file's name."""
    ids = []
    for number, label in enumerate(labels):
        name = "_".join(_id_text(key, text(value)) for key, value in label.items())
        plain = unicodedata.normalize("NFKD", name)  # an accent becomes a letter of its own
        letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
        slug = re.sub(r"[^A-Za-z0-9.+]+", "-", letters).strip("-")
        ids.append(f"{number:03d}-{slug[:80]}")
    return ids


def _id_text(key: str, value: str) -> str:
    return value if key in SELF_EXPLANATORY else f"{key}-{value}"


def encoding_files(runs: Sequence[Run]) -> dict[str, str]:
    """For each table of the study, by its `source_key`, the file that holds its encoding."""
    tables = [source_key(run.dataset) for run in runs if isinstance(run.dataset, Table)]
    files: dict[str, str] = {}
    for table in dict.fromkeys(tables):
        files[table] = f"encoding-{len(files) + 1}.json" if files else "encoding.json"
    return files


def table_columns(labels: Sequence[Label]) -> str:
    """The setting that a table has columns for: the split or, where it is the same for all runs,
    what is tested on, or attackers."""
    compared = [label for label in labels if label["algorithm"] != REFERENCE] or labels
    splits = {label["split"] for label in compared}
    for key in (TEST, "attackers"):
        if key in compared[0] and len(splits) == 1:
            return key
    return "split"


def row_names(labels: Sequence[Label]) -> list[str]:
    """What runs are called in a table that averages over seeds.

    A name has whatever varies, except for the setting that has columns.
    """
    in_columns = {"algorithm", "split", "seed", table_columns(labels)}
    settings = [key for key in labels[0] if key not in in_columns]
    references = [label for label in labels if label["algorithm"] == REFERENCE]
    vary_in_references = [key for key in settings if not _is_constant(key, references)]
    algorithms = {label["algorithm"] for label in labels} - {REFERENCE}
    names = []
    for label in labels:
        if label["algorithm"] == REFERENCE:
            names.append(_row_name(label, vary_in_references, with_algorithm=True))
        else:
            names.append(_row_name(label, settings, with_algorithm=len(algorithms) != 1))
    return names


def _is_constant(key: str, labels: Sequence[Label]) -> bool:
    return len({str(label[key]) for label in labels}) == 1


def _row_name(label: Label, settings: Sequence[str], *, with_algorithm: bool) -> str:
    texts = [f"{key}={text(label[key])}" for key in settings]
    if with_algorithm or not texts:
        texts.insert(0, label["algorithm"])
    return ", ".join(texts)
