"""Divides a study into blocks of runs that need nothing of each other, and decides where they are played.

On a GPU, runs whose clients do the same work are one block, one batched program. On a CPU rows are looped, so nearly
every run is a block of its own: many small blocks are easier to spread.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tacit.core.errors import StudyError, shown
from tacit.core.registry import import_object
from tacit.core.rows import batch_key
from tacit.execution.devices import cores, devices_of, free_memory, shared_memory
from tacit.execution.estimates import Estimator, RunCost, size_of
from tacit.execution.plan import Block, Plan
from tacit.federated.client_side import client_class
from tacit.models.model import Imported
from tacit.models.own import OWN, recall
from tacit.records.tally import duration
from tacit.study.texts import plain
from tacit.study.user_code import Named, components_of, user_code_of

START = 4.0  # seconds that a worker process takes to start, about
PROCESS = 400 << 20  # bytes that it takes before it has done anything
SHARE = 0.8  # of the free memory that is planned with
WORTHWHILE = (
    1e-3  # seconds of arithmetic in a step; with less, threads wait for each other's Python
)


@dataclass(frozen=True)
class Placement:
    """Where a study may be played, as its user says it; None is for the planner to decide."""

    device: str = "cpu"
    workers: int | None = None
    threads: int | None = None
    on: str | None = None  # a Ray cluster
    exact: bool = False  # on a GPU, no TF32

    def __post_init__(self) -> None:
        for name in ("workers", "threads"):
            value = getattr(self, name)
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < 1
            ):
                raise StudyError(
                    f"{name}: expected a whole number of 1 or more, got {shown(value)}"
                )
        if self.threads and self.threads > cores() and self.on is None:
            raise StudyError(
                f"threads: this machine has {cores()} cores for this process, got {self.threads}"
            )
        if self.on is not None and (not isinstance(self.on, str) or not self.on):
            raise StudyError(
                f"on: expected a Ray cluster's address, such as ray://host:10001, got {shown(self.on)}"
            )
        self.devices  # noqa: B018  (refuses devices that are not there)
        if self.workers and not self.on and self.devices != ("cpu",):
            raise StudyError(
                "workers are for cores; every GPU has one: name them all, such as --device cuda:0,cuda:1"
            )

    @property
    def devices(self) -> tuple[str, ...]:
        return devices_of(self.device, elsewhere=self.on is not None)


def group_runs(runs: Sequence[Named]) -> list[list[Named]]:
    """Runs whose clients do the same work up to float settings: their rows can share a batch."""
    groups: dict[str, list[Named]] = {}
    for id, run in runs:
        algorithm = run.client_algorithm
        owner = client_class(type(algorithm))
        keys = (batch_key(algorithm, owner), batch_key(run.optimiser, type(run.optimiser)))
        alike = [plain(part) for part in (run.model, run.dataset, run.public)]
        key = (run.engine, keys, algorithm.sends, alike)
        groups.setdefault(str(key), []).append((id, run))
    return list(groups.values())


def make_plan(
    runs: Sequence[Named], placement: Placement, estimator: Estimator, done: Sequence[str] = ()
) -> Plan:
    """The plan for all runs of a study but those that are done."""
    order = {id: k for k, (id, _) in enumerate(runs)}
    left = [(id, run) for id, run in runs if id not in done]
    costs = {id: estimator.cost(run) for id, run in left}
    cpu = placement.devices == ("cpu",)
    parts = _cpu_parts(left) if cpu else _gpu_parts(left, costs, placement, estimator)
    blocks = [_block(order[part[0][0]], part, costs, estimator) for part in parts]
    if not cpu:
        room = None if placement.on else _room(placement.devices)
        blocks = [
            fitted(block, max(costs[run].row for run in block.runs), room) for block in blocks
        ]
    blocks.sort(key=lambda block: block.index)
    made = Plan(
        tuple(blocks),
        placement.devices,
        0,
        placement.threads or (1 if cpu else None),
        placement.on,
        "",
    )
    placed = _placed(made, placement, tuple(left), estimator)
    return _beside(placed, list(costs.values())) if cpu and not placement.threads else placed


def _beside(plan: Plan, costs: Sequence[RunCost]) -> Plan:
    """Clients side by side on the cores that workers leave, if their steps are long enough for threads to pay.

    Every client is computed by one thread, so that the number of cores changes nothing but the time.
    """
    spare = 1 if plan.on else max(1, cores() // max(plan.workers or 1, 1))
    rows = min((cost.rows for cost in costs), default=1)
    if spare < 2 or not costs or min(cost.step for cost in costs) < WORTHWHILE:
        return plan
    return replace(plan, beside=max(1, min(spare, rows)))


def cannot_travel(runs: Sequence[Named]) -> str | None:
    """The first method or model that only this process knows, if any."""
    for part in components_of(runs):
        path = (
            part.path
            if isinstance(part, Imported)
            else f"{type(part).__module__}:{type(part).__qualname__}"
        )
        known = OWN.get(path) if isinstance(part, Imported) else type(part)
        if known is not None and not path.startswith("tacit.") and not _is_elsewhere(path, known):
            return path
        if isinstance(part, Imported) and isinstance(recall(part.path), nn.Module):
            return part.path  # its weights are those of this process
        if part.calls and part.calls.startswith("__main__:"):
            return part.calls
    return None


def _is_elsewhere(path: str, known: Any) -> bool:
    """Whether another process would import this object by its path."""
    if path.startswith("__main__:") or "#" in path or "<" in path:
        return False
    try:
        return import_object(path) is known
    except StudyError:
        return False


def _cpu_parts(runs: list[Named]) -> list[list[Named]]:
    """Every run alone, but for those of one round that share its work: their clients train once for all."""
    parts: dict[str, list[Named]] = {}
    for id, run in runs:
        shared = run.shared_work() if run.rounds == 1 else None
        parts.setdefault(shared or id, []).append((id, run))
    return list(parts.values())


def _gpu_parts(
    runs: list[Named], costs: dict[str, RunCost], placement: Placement, estimator: Estimator
) -> list[list[Named]]:
    """Groups, each divided among the devices, and further where its runs' states would fill half of the memory."""
    parts = []
    room = None if placement.on else _room(placement.devices)
    for group in group_runs(runs):
        count = (placement.workers or 1) if placement.on else len(placement.devices)
        if room is not None:
            held = sum(costs[id].held for id, _ in group)
            count = max(
                count, math.ceil(2 * held / max(room - estimator.data_bytes([group[0][1]]), 1))
            )
        parts += divided(group, min(count, len(group)), costs)
    return parts


def divided(group: list[Named], count: int, costs: dict[str, RunCost]) -> list[list[Named]]:
    """As many parts, of about equal work; each keeps the study's order."""
    parts: list[list[int]] = [[] for _ in range(count)]
    steps = [costs[id].steps for id, _ in group]
    for k in sorted(
        range(len(group)), key=lambda k: -steps[k]
    ):  # the largest first, to whoever has least
        min(parts, key=lambda part: (sum(steps[i] for i in part), len(part))).append(k)
    return [[group[k] for k in sorted(part)] for part in parts if part]


def _block(index: int, part: list[Named], costs: dict[str, RunCost], estimator: Estimator) -> Block:
    mine = _shared(part, costs)
    fixed = estimator.data_bytes([run for _, run in part]) + sum(cost.held for cost in mine)
    row = max(cost.row for cost in mine)
    sums = {
        name: sum(getattr(cost, name) for cost in mine)
        for name in ("round_steps", "steps", "seconds")
    }
    rows = sum(cost.rows for cost in mine)
    return Block(
        index, tuple(id for id, _ in part), rows=rows, at_once=1, bytes=fixed + row, **sums
    )


def _shared(part: list[Named], costs: dict[str, RunCost]) -> list[RunCost]:
    """What the runs cost together: some share their first round's training."""
    trained: set[str] = set()
    together = []
    for id, run in part:
        cost, work = costs[id], run.shared_work()
        if work in trained:
            left = 1 - 1 / run.rounds
            cost = replace(cost, steps=cost.steps - cost.round_steps, seconds=left * cost.seconds)
        if work is not None:
            trained.add(work)
        together.append(cost)
    return together


def fitted(block: Block, row: int, room: int | None) -> Block:
    """All rows at once, or as many as there is room for; `row` and `room` are bytes."""
    fixed = block.bytes - row
    at_once = block.rows if room is None else min(block.rows, max(1, (room - fixed) // row))
    return replace(block, at_once=at_once, bytes=fixed + at_once * row)


def _room(devices: Sequence[str]) -> int | None:
    """Bytes to plan with on every device; one that is named twice is shared."""
    free = [(free_memory(name), devices.count(name)) for name in devices]
    return min(
        (int(SHARE * found / times) for found, times in free if found is not None), default=None
    )


def _placed(
    plan: Plan, placement: Placement, runs: tuple[Named, ...], estimator: Estimator
) -> Plan:
    """The plan with its place: here, in processes or on a cluster."""
    if placement.on or len(placement.devices) > 1 or (placement.workers or 1) > 1:
        data = {
            str(plain(source))
            for _, run in runs
            for source in (run.dataset, run.public)
            if source is not None
        }
        needed = sum(size_of(estimator.datasets[key]) for key in data)
        reason = _stuck(runs, needed, shared=not placement.on)
        if reason and placement.on and placement.devices != ("cpu",):
            raise StudyError(f"{reason}, without --on")
        if reason:
            return replace(plan, devices=plan.devices[:1], on=None, why=reason, caution=reason)
        if placement.on:
            return replace(plan, workers=placement.workers, why="as asked for")
        count = min(placement.workers or len(placement.devices), len(plan.blocks))
        if count < 2:
            return replace(plan, devices=plan.devices[:1], why="there is one block only")
        return replace(plan, workers=count, why="as asked for")
    if placement.workers == 1 or placement.devices != ("cpu",):
        return replace(
            plan, why="as asked for" if placement.workers else "one GPU needs one process"
        )
    return _measured(plan, runs, estimator)


def _stuck(runs: tuple[Named, ...], needed: int, *, shared: bool) -> str | None:
    """Why the study must stay in this process, if it must."""
    if shared and multiprocessing.current_process().daemon:
        return "this process is a daemon, which may not start others, so the study runs in it"
    if path := cannot_travel(runs):
        remedy = "so the study runs in this process; put it into a module to use others"
        return f"{path} is known in this Python only, {remedy}"
    room = shared_memory() if shared else None
    if room is not None and needed > room:
        sizes = f"{needed / 1e6:.0f} MB of data, and /dev/shm has room for {room / 1e6:.0f} MB"
        return f"workers would share {sizes}, so the study runs in this process; give it more (docker: --shm-size)"
    return None


def _measured(plan: Plan, runs: tuple[Named, ...], estimator: Estimator) -> Plan:
    """Worker processes where they pay: what they save must be twice what it takes to start them."""
    total, largest = (
        sum(block.seconds for block in plan.blocks),
        max((block.bytes for block in plan.blocks), default=0),
    )
    free = free_memory("cpu")
    fit = cores() if free is None else int(SHARE * free) // (PROCESS + largest)
    count = min(cores(), len(plan.blocks), max(fit, 1))
    about = f"about {duration(max(total, 1))} of work on one core"
    if count < 2:
        return replace(plan, why=f"{about}, and nothing to divide or no room to do it")
    if total * (1 - 1 / count) < 2 * START:
        return replace(
            plan,
            why=f"{about}, too little to pay for starting processes; --workers N starts them anyway",
        )
    if own := user_code_of(runs):
        return replace(
            plan, why=f"{about}, with code of your own ({own[0]}); --workers N spreads it"
        )
    needed = sum(size_of(data) for data in estimator.datasets.values())
    if reason := _stuck(runs, needed, shared=True):
        return replace(plan, why=reason)
    here = f"{duration(total / count)} here; --workers 1 keeps it in this process"
    return replace(plan, workers=count, why=f"{about}, {here}")
