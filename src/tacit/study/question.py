"""What a study asks: its grid as a sentence and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from tacit.core.registry import Registered
from tacit.data.datasets import Source
from tacit.study.run import Run
from tacit.study.run_names import label_runs
from tacit.study.settings import SETTINGS, defaults, value_of

ALWAYS = (
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
ELSEWHERE = (
    "algorithm",
    "split",
    "seed",
    "attackers",
    "dataset",
    "clients",
)  # settings with a place of their own
NAMED = 6  # of a longer list the sentence tells the number


def ask(runs: Sequence[Run]) -> str:
    """The question of a study with these runs, in a sentence.

    >>> from tacit.study.study import Study
    >>> ask(Study(algorithm=["fedavg", "fedprox"], split=["iid", "label_dirichlet"]).runs())
    'How do fedavg and fedprox compare on digits, divided among 4 clients by iid and label_dirichlet(beta=0.5)?'
    """
    runs = _compared(runs)
    labels = label_runs(runs)
    methods = list(dict.fromkeys(label["algorithm"] for label in labels))
    others = [key for key in labels[0] if key not in ELSEWHERE]
    varied = [f"{key} {listed([str(label[key]) for label in labels], 'values')}" for key in others]
    data = listed([_data_name(run.dataset) for run in runs], "data sets")
    clients = listed([str(run.clients) for run in runs], "numbers of", last="or")
    splits = listed(
        ["owner" if run.split.by == "owners" else short(run.split, full=True) for run in runs],
        "splits",
    )
    compared = (
        f"do {listed(methods, 'methods')} compare"
        if len(methods) > 1
        else f"well does {methods[0]} learn"
    )
    compared += f", with {' and '.join(varied)}," if varied else ""
    attackers = [value_of(run, "attackers") for run in runs]
    lies = [short(one) for one in attackers]
    attacks = (
        f", with attackers {listed(lies, 'kinds of attack')}"
        if any(one.count for one in attackers)
        else ""
    )
    return f"How {compared} on {data}, divided among {clients} clients by {splits}{attacks}?"


def varied_and_same(runs: Sequence[Run]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What varies and what stays the same, as rows of a setting and its values; usual defaults are left out."""
    runs = _compared(runs)
    varied, same = [], []
    for name, item in SETTINGS.items():
        if item.metadata["asks"]:
            continue
        values = [value_of(run, name) for run in runs]
        texts = list(dict.fromkeys(short(value, full=True) for value in values))
        if len(texts) > 1:
            varied.append((name, ", ".join(texts)))
        elif name in ALWAYS or values[0] != defaults()[name]:
            same.append((name, texts[0]))
    return varied, same


def short(value: Any, *, full: bool = False) -> str:
    """A setting as people write it: a method's name with what is not the default; if full, its numbers too."""
    if isinstance(value, Registered):
        shown = [f.name for f in fields(value) if not _usual(value, f, full)]  # type: ignore[arg-type]
        inner = ", ".join(f"{name}={short(getattr(value, name))}" for name in shown)
        name = str(value.spec()[value.key])
        return f"{name}({inner})" if inner else name
    if isinstance(value, list | tuple):
        return f"[{', '.join(short(one, full=full) for one in value)}]"
    return f"{value:.10g}" if isinstance(value, float) else "none" if value is None else str(value)


def listed(items: Sequence[str], plural: str, *, last: str = "and") -> str:
    """`a, b and c`, each once; of more than a few, their number."""
    once = list(dict.fromkeys(items))
    if len(once) > NAMED:
        return f"{len(once)} {plural}"
    return once[0] if len(once) == 1 else f"{', '.join(once[:-1])} {last} {once[-1]}"


def _data_name(source: Source) -> str:
    """A file or function of the user's own is called by its own name."""
    return Path(source.path).name if isinstance(getattr(source, "path", None), str) else source.name  # type: ignore[attr-defined]


def _compared(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.is_reference]


def _usual(value: Registered, field: Any, full: bool) -> bool:
    found = getattr(value, field.name)
    first = field.name == fields(value)[0].name  # type: ignore[arg-type]
    if full and found and (isinstance(found, float) or (first and isinstance(found, int | tuple))):
        return False
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return bool(found == default)
