"""A study: settings, any of which may be a list; the product of the lists is run.

>>> study = Study("demo", algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}], seed=[0, 1])
>>> [run.algorithm for run in study.runs()][:3]
[FedAvg(weights='samples'), FedAvg(weights='samples'), FedProx(weights='samples', mu=0.1)]
>>> len(study.runs())
6
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import yaml

from tacit.core.errors import StudyError, shown
from tacit.core.fields import check_names, conform, field_types, takes_list
from tacit.core.own_code import own_code
from tacit.core.registry import Registered
from tacit.data.datasets import Source
from tacit.data.splits.split import Split
from tacit.federated.algorithm import Algorithm
from tacit.federated.behaviour import Behaviour
from tacit.federated.combine.combiner import Combiner
from tacit.federated.fusion.fusion import Fusion
from tacit.federated.selection import Selection
from tacit.federated.wire.attackers import Attackers
from tacit.federated.wire.stage import Stage
from tacit.models.model import Mlp, Model
from tacit.models.own import is_own, remember
from tacit.study.checks import check_run
from tacit.study.file import parse_override, read_settings
from tacit.study.grid import make_points
from tacit.training.optimisers import Optimiser
from tacit.training.schedules import Schedule


def _setting(default: Any, about: str) -> Any:
    return field(metadata={"default": default, "about": about})


@dataclass(frozen=True)
class Run:
    """One point of the grid, with every name resolved to its object."""

    dataset: Source = _setting("digits", "tacit list datasets; your own: {name: table, path: my.csv, target: column}")
    model: Model = _setting("mlp", "tacit list models; your own: {name: module, path: package.module:Class}")
    split: Split = _setting("iid", "how the samples are divided among the clients: tacit list splits")
    clients: int = _setting(4, "how many organisations take part")
    algorithm: Algorithm = _setting("fedavg", "tacit list algorithms, such as {name: fedprox, mu: 0.1}")
    fusion: Fusion | None = _setting(None, "clients train alone, then their networks are matched: tacit list fusions")
    widths: tuple[int, ...] | None = _setting(
        None, "with a fusion: every client's width, as [50, 80]; null: the model's"
    )
    combiner: Combiner = _setting("mean", "how the server makes one row of many: tacit list combiners")
    selection: Selection = _setting("all", "who takes part in a round: tacit list selections")
    behaviour: Behaviour = _setting("steady", "how much of its work a client gets done: tacit list behaviours")
    dropout: float = _setting(0.0, "the probability that a client's reply is lost, each round")
    missing: Literal["left_out", "zero"] = _setting(
        "left_out", "whether a lost reply counts as one that changes nothing"
    )
    attackers: Attackers = _setting(
        "none", "clients that lie, such as {count: 2, kind: sign_flip}: tacit list attackers"
    )
    wire: tuple[Stage, ...] = _setting((), "what messages go through, such as [top_k, quantise]: tacit list stages")
    optimiser: Optimiser = _setting("sgd", "each client's local optimiser, fresh each round: tacit list optimisers")
    schedule: Schedule = _setting("constant", "the learning rate from round to round: tacit list schedules")
    rounds: int = _setting(10, "rounds of communication")
    local_epochs: int | tuple[int, ...] = _setting(1, "passes over its own data per round; [5, 1, 2] is one per client")
    batch_size: int | tuple[int, ...] | None = _setting(32, "per client, or [32, 64, 32]; null is the full batch")
    radius: float | None = _setting(None, "keep the global parameters in a ball of this radius around zero")
    fine_tuning: int = _setting(0, "passes over its own data that adapt a client's model before each local test")
    public: Source | None = _setting(None, "a public or synthetic table to learn from; null: the server's samples")
    pretraining: int = _setting(0, "passes over the public data before the first round")
    distillation: int = _setting(0, "passes over the public data each round, towards the clients' mean prediction")
    initial: Literal["same", "different"] = _setting("same", "whether all clients start from the same weights")
    local_test: float = _setting(0.1, "the share of its samples that a client keeps to test on")
    server_samples: int = _setting(0, "samples set aside for the server before the split")
    target_accuracy: float | None = _setting(None, "stop once the global test accuracy, or R2, is this good")
    patience: int | None = _setting(None, "stop after this many rounds without a better global test accuracy, or R2")
    seed: int = _setting(0, "everything random follows from it")
    centralised: bool = _setting(False, "also train on all data at one place, for reference")

    def __post_init__(self) -> None:
        check_run(self)

    def epochs_of(self, client: int) -> int:
        """This client's passes over its data per round."""
        fixed = self.algorithm.local_work
        return fixed.epochs if fixed else self._of("local_epochs", client)

    def batch_size_of(self, client: int) -> int | None:
        """This client's batch size; None is the full batch."""
        fixed = self.algorithm.local_work
        return fixed.batch_size if fixed else self._of("batch_size", client)

    def model_of(self, client: int) -> Model:
        """This client's model: with widths of its own, another one."""
        if self.widths is None or not isinstance(self.model, Mlp):
            return self.model
        return replace(self.model, hidden=(self.widths[client],) * len(self.model.hidden))

    def _of(self, name: str, client: int) -> Any:
        value = getattr(self, name)
        return value[client] if isinstance(value, tuple) else value


SETTINGS = {item.name: item for item in fields(Run)}


class Study:
    """A named grid of runs. Settings are those of `Run`; a list is a grid, and so is `{"grid": [...]}`.

    A setting that takes a list itself (`local_epochs: [5, 1, 2]`) wants the second form: `{"grid": [1, [5, 1, 2]]}`.
    """

    def __init__(self, /, name: str = "study", **settings: Any) -> None:
        check_names(settings, SETTINGS, "a study")
        if not isinstance(name, str) or not name.strip(" .") or "/" in name:
            raise StudyError(f"name: expected a word that can be a folder's name, got {shown(name)}")
        self.name = name
        if "model" in settings:
            settings["model"] = _name_models(settings["model"])
        given = {key: settings.get(key, item.metadata["default"]) for key, item in SETTINGS.items()}
        try:
            self.settings = {key: _native(value) for key, value in given.items()}
            self.runs()  # what makes no sense is said at once
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
            raise StudyError(f"expected a study, its file or a dict of its settings, got {shown(given)}")
        return cls.from_file(given)

    def runs(self) -> list[Run]:
        """Every point of the grid, then the centralised references if asked for."""
        with own_code():
            choices = {key: expand(self.settings[key], field_types(Run)[key], key) for key in SETTINGS}
            grid = make_points(choices, Run, plain)
        references = [_centralised(run) for run in grid if run.centralised]
        grid = [replace(run, algorithm=Algorithm.build("local")) if run.fusion else run for run in grid]
        runs = [*(replace(run, centralised=False) for run in grid), *references]
        return list({str(describe(run)): run for run in runs}.values())

    def to_dict(self) -> dict[str, Any]:
        """All settings, resolved, as plain values."""
        resolved: dict[str, Any] = {"name": self.name}
        for key, annotation in field_types(Run).items():
            points = [plain(point) for point in expand(self.settings[key], annotation, key)]
            resolved[key] = points[0] if len(points) == 1 else {"grid": points}
        return resolved

    def to_yaml(self) -> str:
        """The study as a file."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def question(self) -> str:
        """What the study asks, in a sentence."""
        from tacit.study.question import ask

        return ask(self)

    def _repr_html_(self) -> str:
        """In a notebook: the question, and what varies and what does not."""
        from tacit.study.question import settings

        varied, same = settings(self)
        rows = [(key, f"<b>{html.escape(text)}</b>") for key, text in varied]
        rows += [(key, html.escape(text)) for key, text in same]
        cells = "".join(f"<tr><th style='text-align:left'>{key}</th><td>{text}</td></tr>" for key, text in rows)
        return f"<p><b>{html.escape(self.question())}</b></p><table>{cells}</table>"

    def __repr__(self) -> str:
        given = {key: value for key, value in self.settings.items() if value != SETTINGS[key].metadata["default"]}
        return f"Study({', '.join([repr(self.name), *(f'{key}={plain(value)!r}' for key, value in given.items())])})"


def expand(value: Any, annotation: Any, where: str) -> list[Any]:
    """The values that a setting takes in the grid."""
    if isinstance(value, Mapping) and set(value) == {"grid"}:
        if not isinstance(value["grid"], list | tuple) or not value["grid"]:
            raise StudyError(f"{where}: expected {{grid: [first, second, ...]}}, got {shown(value['grid'])}")
        return [item for part in value["grid"] for item in expand(part, annotation, where)]
    if get_origin(annotation) is Mapping and isinstance(value, Mapping):  # a model's arguments: grids inside them
        choices = [expand(item, Any, f"{where}.{key}") for key, item in value.items()]
        return [dict(zip(value, point, strict=True)) for point in itertools.product(*choices)]
    family, several = _family_of(annotation)
    if several:  # a list is one value: stages that a message goes through
        if value is None or value in ("none", "null", ""):
            raise StudyError(f"{where}: expected a list, got {shown(value)}; for no {where}, use [], an empty list")
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, list | tuple) for part in parts):
            raise StudyError(f"{where}: a list is one {where} of several stages; to vary it, use {{grid: [...]}}")
        return list(itertools.product(*(expand(part, family, where) for part in parts)))
    if isinstance(value, list | tuple) and annotation is not Any and not takes_list(annotation):
        if not value:
            raise StudyError(f"{where}: an empty list leaves nothing to run")
        return [item for part in value for item in expand(part, annotation, where)]
    if family is None or (value is None and not isinstance(annotation, type)):
        return [conform(value, annotation, where)]
    return [family.build(point) for point in _expand_spec(value, family)]


def _family_of(annotation: Any) -> tuple[type[Registered] | None, bool]:
    """The family that a setting's values belong to, if any, and whether it takes a list of them."""
    parts = [part for part in get_args(annotation) if part not in (type(None), ...)] or [annotation]
    found = parts[0] if isinstance(parts[0], type) and issubclass(parts[0], Registered) else None
    return found, found is not None and get_origin(annotation) is tuple


SETTING_FAMILIES = {
    key: family for key, annotation in field_types(Run).items() if (family := _family_of(annotation)[0]) is not None
}


def describe(run: Run) -> dict[str, Any]:
    """The run as plain values."""
    return {key: plain(getattr(run, key)) for key in SETTINGS}


def local_work(run: Run) -> str:
    """Tells what clients do before anything is fused: the same for runs that differ in their fusion only."""
    return str({**describe(run), "fusion": None})


def plain(value: Any) -> Any:
    """Registered objects and tuples as what YAML and JSON can hold."""
    if isinstance(value, Registered):
        return plain(value.spec())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _expand_spec(spec: Any, family: type[Registered]) -> list[Any]:
    """Grids inside `{name: fedprox, mu: [0.1, 1]}`."""
    if isinstance(spec, Mapping) and isinstance(spec.get(family.key), list):  # {kind: [sign_flip, gaussian], count: 4}
        return [one for name in spec[family.key] for one in _expand_spec({**spec, family.key: name}, family)]
    if not isinstance(spec, Mapping) or not isinstance(spec.get(family.key), str):
        return [spec]
    name = spec[family.key]
    types = field_types(family.find(name))
    keys = [key for key in spec if key != family.key]
    family.check_settings(name, {key: spec[key] for key in keys})
    choices = [expand(spec[key], types[key], f"{name}.{key}") for key in keys]
    return [{family.key: name, **dict(zip(keys, point, strict=True))} for point in itertools.product(*choices)]


def _native(value: Any) -> Any:
    """Ranges and NumPy's arrays and numbers as plain lists and numbers."""
    if isinstance(value, range):
        return list(value)
    if isinstance(value, dict):
        return {key: _native(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_native(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


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
    family, several = _family_of(field_types(Run)[head])
    if family is None:
        raise StudyError(f"{key}: {head} has no settings of its own; give it whole, {head}=...")
    if "." in inner:
        raise StudyError(f"{key}: expected one dot, as in optimiser.lr; give {head} whole, {head}={{...}}")
    if isinstance(spec, list) or spec is None or (isinstance(spec, dict) and set(spec) == {"grid"}):
        kind = "a list of stages" if several else "a list in this study" if spec else "nothing in this study"
        raise StudyError(f"{key}: {head} is {kind}; give it whole, {head}={_example(family, spec, inner, value)}")
    spec = {family.key: spec} if not isinstance(spec, dict) else dict(spec)
    settings[head] = {**spec, inner: value}


def _example(family: type[Registered], spec: Any, inner: str, value: Any) -> str:
    """A whole setting, for a message to someone who named a field of it; of a method in the study, if one fits."""
    owners = [name for name, member in family.known().items() if inner in field_types(member)]
    owner = next((name for name in sorted(owners, key=lambda name: name not in str(spec))), "...")
    return f"{{{family.key}: {owner}, {inner}: {plain(value)}}}"


def _centralised(run: Run) -> Run:
    """The same work on all the data in one place: one client, which averages with nobody."""
    epochs = (
        run.local_epochs if isinstance(run.local_epochs, int) else round(sum(run.local_epochs) / len(run.local_epochs))
    )
    batch = run.batch_size if not isinstance(run.batch_size, tuple) else run.batch_size[0]
    return replace(
        run,
        split=Split.build("iid"),
        clients=1,
        algorithm=Algorithm.build("fedavg"),
        fusion=None,
        widths=None,
        combiner=Combiner.build("mean"),
        selection=Selection.build("all"),
        behaviour=Behaviour.build("steady"),
        dropout=0.0,
        missing="left_out",
        attackers=Attackers.build("none"),
        wire=(),
        local_epochs=epochs,
        batch_size=batch,
        radius=None,
        fine_tuning=0,
        public=None,
        pretraining=0,
        distillation=0,
        initial="same",
        server_samples=0,
    )
