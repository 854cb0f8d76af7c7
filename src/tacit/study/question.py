"""What a study asks: its grid as a sentence and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tacit.data.datasets import ArraysSource, Source
from tacit.data.own_frames import is_frame_name
from tacit.data.tables import Table
from tacit.study.run import Run
from tacit.study.run_names import TEST, label_runs
from tacit.study.settings import SETTINGS, defaults, value_of
from tacit.study.texts import short

SettingRow = tuple[str, str]  # a setting and its values

IN_TABLE = (  # also at their defaults
    "dataset",
    "model",
    "split",
    "clients",
    "algorithm",
    "optimiser",
    "rounds",
    "local_epochs",
    "batch_size",
    "seed",
)
IN_SENTENCE = (  # each in a clause of its own
    "algorithm",
    "split",
    "seed",
    "attackers",
    "dataset",
    "clients",
)
MOST_LISTED = 6  # of a longer list the sentence tells the number


def ask(runs: Sequence[Run]) -> str:
    """The question of a study with these runs, in a sentence.

    >>> from tacit.study.study import Study
    >>> ask(Study(algorithm=["fedavg", "fedprox"], clients=[3, 5]).runs())
    'How do fedavg and fedprox compare on digits, divided among 3 or 5 clients by iid?'
    """
    runs = _without_references(runs)
    data = listed([_data_name(run.dataset) for run in runs], "data sets")
    clients = listed([str(run.clients) for run in runs], "numbers of", last="or")
    splits = listed([_split_name(run) for run in runs], "splits")
    divided = f"divided among {clients} clients by {splits}"
    return f"How {_comparison(runs)} on {data}, {divided}{_attacks(runs)}?"


def _comparison(runs: Sequence[Run]) -> str:
    """`do fedavg and fedprox compare, with rounds 5 and 10,`."""
    labels = label_runs(runs)
    methods = list(dict.fromkeys(label["algorithm"] for label in labels))
    if len(methods) > 1:
        text = f"do {listed(methods, 'methods')} compare"
    else:
        text = f"well does {methods[0]} learn"
    varied = []
    for key in labels[0]:
        if key in IN_SENTENCE:
            continue
        values = listed([str(label[key]) for label in labels], "values")
        if key == TEST:
            text += f", tested on {values},"
        else:
            varied.append(f"{key} {values}")
    return f"{text.removesuffix(',')}, with {' and '.join(varied)}," if varied else text


def _attacks(runs: Sequence[Run]) -> str:
    attackers = [value_of(run, "attackers") for run in runs]
    if not any(attack.count for attack in attackers):
        return ""
    attacks = listed([short(attack) for attack in attackers], "kinds of attack")
    return f", with attackers {attacks}"


def varied_and_same(runs: Sequence[Run]) -> tuple[list[SettingRow], list[SettingRow]]:
    """The settings that vary and those that stay the same; usual defaults are left out."""
    runs = _without_references(runs)
    varied: list[SettingRow] = []
    constant: list[SettingRow] = []
    for name, item in SETTINGS.items():
        if item.metadata["asks"]:
            continue
        values = [value_of(run, name) for run in runs]
        if name == "dataset":
            tests = list(dict.fromkeys(source.tested_on for source in values))
            if len(tests) > 1:
                varied.append((TEST, ", ".join(tests)))
                values = [_without_test(source) for source in values]
        texts = list(dict.fromkeys(short(value, full=True) for value in values))
        if len(texts) > 1:
            varied.append((name, ", ".join(texts)))
        elif name in IN_TABLE or values[0] != defaults()[name]:
            constant.append((name, texts[0]))
    return varied, constant


def _without_test(source: Source) -> Source:
    return replace(source, test=None) if isinstance(source, Table) else source


def listed(items: Sequence[str], plural: str, *, last: str = "and") -> str:
    """`a, b and c`, each once; if they are many, only their number."""
    once = list(dict.fromkeys(items))
    if len(once) > MOST_LISTED:
        return f"{len(once)} {plural}"
    if len(once) == 1:
        return once[0]
    return f"{', '.join(once[:-1])} {last} {once[-1]}"


def _data_name(source: Source) -> str:
    """A file or function of the user is called by its name."""
    path = getattr(source, "path", None)
    if isinstance(path, str) and is_frame_name(path):
        return "a data frame"
    if isinstance(source, ArraysSource):
        return "arrays"
    return Path(path).name if isinstance(path, str) else source.name


def _split_name(run: Run) -> str:
    return "owner" if run.split.by == "owners" else short(run.split, full=True)


def _without_references(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.is_reference]
