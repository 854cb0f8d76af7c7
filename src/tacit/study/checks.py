"""What a run cannot be, and what its author should know: every refusal says why and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from tacit.core.errors import DataError, StudyError
from tacit.core.registry import Registered
from tacit.data.tables import Table
from tacit.execution.machine import machine_memory
from tacit.federated.algorithms.clustered import Clustered
from tacit.federated.algorithms.fednova import FedNova
from tacit.federated.algorithms.fedplus import FedPlus
from tacit.federated.algorithms.scaffold import Scaffold
from tacit.federated.combine.median import TrimmedMean
from tacit.federated.fusion.dense import check_neurons
from tacit.models.model import Mlp

if TYPE_CHECKING:
    from tacit.study.study import Run

WEIGHTS = ("samples", "uniform")
ALONE = {  # what leaves clients alone with their networks, as a fusion needs it
    "combiner": "mean",
    "selection": "all",
    "behaviour": "steady",
    "dropout": 0.0,
    "missing": "left_out",
    "attackers": "none",
    "wire": (),
    "radius": None,
    "fine_tuning": 0,
    "pretraining": 0,
    "distillation": 0,
}
FLOORS = {
    "clients": 1,
    "rounds": 1,
    "server_samples": 0,
    "seed": 0,
    "fine_tuning": 0,
    "pretraining": 0,
    "distillation": 0,
}


def check_run(run: Run) -> None:
    """Raises StudyError, with the reason, for settings that make no sense by themselves or together."""
    _check_numbers(run)
    if run.fusion is None:
        run.algorithm.check(run.optimiser)
    run.selection.check(run.clients)
    run.attackers.check(run.clients)
    run.combiner.check(run.selection.count(run.clients))
    _check_counts(run)
    _check_server_data(run)
    _check_single_messages(run)
    _check_start(run)
    _check_fusion(run)


def check_fusible(run: Run, module: nn.Module, sizes: Sequence[int], shape: Sequence[int], classes: int) -> None:
    """Refuses networks whose neurons cannot be matched, and clients that have none to match."""
    if run.fusion is None:
        return
    if run.fusion.weighs_classes and not classes:
        raise StudyError(f"{run.fusion.name} with class_weights needs classes, and these data have a number to predict")
    try:
        check_neurons(module, shape)
    except DataError as error:
        raise StudyError(f"{run.fusion.name} cannot fuse {run.model.name}: {error}") from None
    if frozen := [name for name, parameter in module.named_parameters() if not parameter.requires_grad]:
        raise StudyError(f"{run.fusion.name} fuses what clients have trained, and {frozen[0]} is frozen")
    if empty := [client for client, size in enumerate(sizes) if not size]:
        raise StudyError(f"client {empty[0]} has no sample to train a network with; use fewer clients or another split")


def check_server_memory(run: Run, row_bytes: int) -> None:
    """Refuses a server that would keep more than this machine can hold: Fed+'s has a model of every client."""
    if not isinstance(run.algorithm, FedPlus):
        return
    needed, there = 2 * run.clients * row_bytes, machine_memory()  # the models of this round and of the next
    if there is not None and needed > there:
        raise StudyError(
            f"fedplus keeps every client's model on the server: {run.clients:,} of them take {needed / 1e9:,.0f} GB,"
            f" and this machine has {there / 1e9:,.0f} GB; use fewer clients, a smaller model or another algorithm"
        )


def cautions(runs: Sequence[Run]) -> list[str]:
    """What makes sense, but may not do what its author expects; each said once."""
    found = [text for run in runs for text in _cautions(run)]
    uneven = [run for run in runs if run.split.name != "iid" and run.algorithm.combines and not run.centralised]
    by_weights = {kind: [run.algorithm.name for run in uneven if run.algorithm.weights == kind] for kind in WEIGHTS}
    plain = [run for run in runs if run.fusion is None and run.algorithm.combines]
    mixed = [run.algorithm.name for run in plain if run.initial == "different"]
    if mixed and any(run.fusion for run in runs):
        found.append(
            f"{', '.join(dict.fromkeys(mixed))} averages networks that start from weights of their own, which breaks"
            " them; with initial: same it would do better"
        )
    if all(by_weights.values()):
        samples, uniform = (", ".join(dict.fromkeys(names)) for names in by_weights.values())
        found.append(
            f"clients count by their samples in {samples}, and all the same in {uniform}, as in their papers;"
            " set weights to compare like with like"
        )
    return list(dict.fromkeys(found))


def _cautions(run: Run) -> list[str]:
    found = [run.algorithm.caution(run.split)]
    rule, replies = run.combiner, run.selection.count(run.clients)
    withstood, liars = rule.tolerates(replies), run.attackers.count
    if liars > withstood and not rule.linear:
        found.append(
            f"{rule.name} as set here withstands {withstood} of {replies} replies that lie, and the study has"
            f" {liars} attacker{'s' if liars > 1 else ''}"
        )
    if isinstance(rule, TrimmedMean) and rule.beta and not withstood:
        found.append(f"trimmed_mean drops floor(beta n) replies a side, which of {replies} is none; use a larger beta")
    expected = replies * (1 - run.dropout)
    if run.missing == "left_out" and expected < rule.quorum:
        found.append(
            f"{rule.name} needs {rule.quorum} replies, and with dropout {run.dropout:g} a round has {expected:.1f};"
            " rounds with fewer change nothing"
        )
    if run.fusion is not None and run.initial == "same":
        found.append(
            "all clients start from the same weights, so their neurons are in one order already and"
            f" {run.fusion.name} has little to do; set initial: different for networks that were made independently"
        )
    if run.algorithm.name == "local" and (run.wire or run.attackers.count):
        found.append("local sends nothing, so neither the wire nor what attackers send can change it")
    if run.public is not None and not (run.pretraining or run.distillation):
        found.append("public data are named, and neither pretraining nor distillation uses them")
    if isinstance(run.dataset, Table) and run.dataset.client and run.split.by != "owners" and not run.centralised:
        found.append(
            f"the column {run.dataset.client} says whose each row is, and {run.split.name} divides the rows otherwise;"
            " use split: by_client to keep them together"
        )
    return [text for text in found if text]


def _check_numbers(run: Run) -> None:
    for name, floor in FLOORS.items():
        if getattr(run, name) < floor:
            raise StudyError(f"{name}: expected {floor} or more, got {getattr(run, name)}")
    for name in ("local_epochs", "batch_size"):
        value = getattr(run, name)
        if isinstance(value, tuple) and len(value) != run.clients:
            raise StudyError(f"{name}: expected one value for each of {run.clients} clients, got {list(value)}")
        if value is not None and min(value if isinstance(value, tuple) else (value,)) < 1:
            raise StudyError(f"{name}: expected 1 or more, got {value}")
    for name in ("local_test", "dropout"):
        if not 0 <= getattr(run, name) < 1:
            raise StudyError(f"{name}: expected a share from 0 to below 1, got {getattr(run, name)}")
    if run.target_accuracy is not None and not 0 < run.target_accuracy <= 1:
        raise StudyError(f"target_accuracy: expected a share above 0 and up to 1, got {run.target_accuracy}")
    if run.patience is not None and run.patience < 1:
        raise StudyError(f"patience: expected 1 or more, got {run.patience}")
    if run.radius is not None and not run.radius > 0:
        raise StudyError(f"radius: expected a number above 0, got {run.radius}")


def _check_counts(run: Run) -> None:
    if isinstance(run.algorithm, Clustered) and run.algorithm.clusters > run.clients:
        raise StudyError(
            f"clustered: {run.clients} clients cannot form {run.algorithm.clusters} clusters; use at most {run.clients}"
        )
    names = [stage.name for stage in run.wire]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StudyError(
            f"wire: {twice} is there twice, and a message goes through all stages of the list; leave one out, or"
            f" compare the two with {{grid: [[{twice}], ...]}}"
        )


def _check_server_data(run: Run) -> None:
    if run.combiner.needs_server_data and not run.server_samples:
        raise StudyError(f"{run.combiner.name} judges updates on the server's own data; set server_samples: 100, say")
    if run.combiner.needs_server_data and not run.algorithm.whole_updates:
        raise StudyError(
            f"{run.combiner.name} tries every update on the server's data, and {run.algorithm.name} sends a part of it,"
            " per step; use another combiner or algorithm"
        )
    for name in ("pretraining", "distillation"):
        if getattr(run, name) and run.public is None and not run.server_samples:
            raise StudyError(f"{name} needs data to learn from: name a public table, or set server_samples: 100, say")
    if run.distillation and not run.algorithm.combines:
        raise StudyError(f"distillation is for one global model, which {run.algorithm.name} is not; use fedavg, say")
    if run.distillation and not run.algorithm.whole_updates:
        raise StudyError(
            f"distillation asks the clients' models, and what {run.algorithm.name} sends is no model; use fedavg, say"
        )
    if run.distillation and not run.combiner.linear:
        raise StudyError(
            f"distillation asks all clients' models, past {run.combiner.name}, so a liar would be heard after all;"
            " use combiner: mean, or no distillation"
        )


def _check_start(run: Run) -> None:
    """Methods that read gradients off an update need one that starts where the server said."""
    if run.initial == "same" or run.fusion is not None:
        return
    if isinstance(run.algorithm, FedNova | Scaffold):
        raise StudyError(
            f"{run.algorithm.name} reads gradients off w - x, so clients must start at x; leave out initial: different"
        )
    if run.pretraining:
        raise StudyError("pretraining has no effect where clients start from weights of their own; use initial: same")


def _check_fusion(run: Run) -> None:
    """A fusion takes whole networks, each trained alone, in place of what an algorithm sends."""
    if run.widths is not None:
        if run.fusion is None:
            raise StudyError(
                "widths: only a fusion can make one of networks of different widths; set fusion: pfnm, say"
            )
        if not isinstance(run.model, Mlp):
            raise StudyError(f"widths are those of an mlp's hidden layers; leave them out with model: {run.model.name}")
        if len(run.widths) != run.clients or min(run.widths) < 1:
            raise StudyError(
                f"widths: expected {run.clients} numbers of 1 or more, one for each client, got {list(run.widths)}"
            )
    if run.fusion is None:
        return
    if run.fusion.one_width and len(set(run.widths or ())) > 1:
        raise StudyError(f"{run.fusion.name} needs networks of the same widths; leave out widths, or use pfnm or spahm")
    for name, plain in ALONE.items():
        value = getattr(run, name)
        value = value.name if isinstance(value, Registered) else value
        if value != plain:
            raise StudyError(
                f"{run.fusion.name} fuses whole networks that every client has trained alone; leave out {name}"
            )


def _check_single_messages(run: Run) -> None:
    """Methods that place each client's own model have nothing for a combiner to do, nor for a made-up reply."""
    if run.algorithm.combines or run.fusion is not None:
        return
    if run.combiner.name != "mean":
        raise StudyError(
            f"{run.algorithm.name} does not leave the averaging to a combiner; leave out combiner: {run.combiner.name}"
        )
    if run.missing == "zero":
        raise StudyError(f"{run.algorithm.name} keeps a missing client's last model; leave out missing: zero")
    if run.radius is not None:
        raise StudyError(f"{run.algorithm.name} has more models than the global one; leave out radius")
