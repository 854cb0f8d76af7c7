"""Methods that differ only from the second local step on, compared where there is no second one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tacit.data.partition import Partition
from tacit.study.divisions import division_key
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.question import listed
from tacit.study.run import Run
from tacit.study.settings import describe
from tacit.study.texts import short
from tacit.study.values import defaults_of
from tacit.training.optimisers import SGD

PLAIN = ("combiner", "selection", "behaviour", "dropout", "wire", "attackers")


def one_step_cautions(runs: Sequence[Run], partitions: Mapping[str, Partition]) -> list[str]:
    """Names the methods of the study that do the same, since clients take one step per round."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run, HorizontalRun) and _is_fedavg(run, partitions):
            others = {**describe(run), "algorithm": run.algorithm.weights}
            groups.setdefault(str(others), []).append(short(run.algorithm))
    texts = []
    for names in groups.values():
        if len(set(names)) > 1:
            methods = listed(names, "of the methods")
            texts.append(
                f"every client takes one local step per round, and with one step {methods} do the"
                " same; to compare them use a smaller batch_size or more local_epochs"
            )
    return list(dict.fromkeys(texts))


def _is_fedavg(run: HorizontalRun, partitions: Mapping[str, Partition]) -> bool:
    """Whether the run does what FedAvg would do, because no client takes a second step."""
    if run.is_reference or run.initial != "same" or run.sampling.free:
        return False
    if not type(run.algorithm).__module__.startswith("tacit."):
        return False  # it may inherit the answer, and do something else
    answer = run.algorithm.fedavg_in_one_step
    if answer == "never" or (answer == "averaged" and not _averages_gradients(run)):
        return False
    sizes = [len(samples) for samples in partitions[division_key(run)].train]
    return all(_steps(run, client, size) <= 1 for client, size in enumerate(sizes))


def _averages_gradients(run: HorizontalRun) -> bool:
    """Whether every client takes part, and nothing changes what it sends."""
    usual = defaults_of(HorizontalRun)
    is_plain = all(getattr(run, name) == usual[name] for name in PLAIN)
    server_lr = getattr(run.algorithm, "server_lr", 1.0)
    return is_plain and server_lr == 1.0 and isinstance(run.optimiser, SGD)


def _steps(run: Run, client: int, size: int) -> int:
    batch = run.batch_size_of(client) or size
    return run.epochs_of(client) * math.ceil(size / max(batch, 1))
