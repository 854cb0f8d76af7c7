"""Decides where the blocks of a study are played: here, in worker processes or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from tacit.core.errors import StudyError
from tacit.core.import_paths import import_object
from tacit.core.machine import usable_cores
from tacit.core.registry import Registered
from tacit.execution.blocks import SHARE, BlockMaker
from tacit.execution.devices import free_memory, shared_memory
from tacit.execution.estimates import Estimator, RunCost, size_of
from tacit.execution.placement import Placement
from tacit.execution.plan import Plan
from tacit.models.model import Imported
from tacit.models.own import LIBRARIES, OWN, recall
from tacit.records.tally import duration
from tacit.study.user_code import RunWithId, components_of, user_code_of

START = 4.0  # seconds that a worker process takes to start, about
PROCESS = 400 << 20  # bytes that it takes before it has done anything
WORTHWHILE = 1e-3  # seconds of arithmetic in a step; with less, threads wait for each other
ASKED = "as asked for"


def make_plan(
    runs: Sequence[RunWithId],
    placement: Placement,
    estimator: Estimator,
    done: Collection[str] = (),
) -> Plan:
    """The plan for all runs of a study except those that are done."""
    maker = BlockMaker(runs, done, estimator)
    threads = placement.threads
    if placement.on_cores:
        blocks = maker.for_cores()
        threads = threads or 1
    else:
        blocks = maker.for_gpus(placement)
    draft = Plan(
        blocks=tuple(blocks),
        devices=placement.devices,
        workers=0,
        threads=threads,
        on=placement.on,
        why="",
    )
    plan = _placed(draft, placement, maker.runs, estimator)
    if placement.on_cores and not placement.threads:
        return _side_by_side(plan, list(maker.costs.values()))
    return plan


def cannot_travel(runs: Sequence[RunWithId]) -> str | None:
    """The import path of the first method or model that only this process knows, if any."""
    for method in components_of(runs):
        path, value = _definition(method)
        is_users_own = value is not None and not path.startswith("tacit.")
        if is_users_own and not _is_importable(path, value):
            return path
        if isinstance(method, Imported) and isinstance(recall(path), nn.Module):
            return path  # its weights are in this process
        if method.calls and method.calls.startswith("__main__:"):
            return method.calls
    return None


def _definition(method: Registered) -> tuple[str, Any]:
    """The import path of the user's code behind a method, and what this process knows by it."""
    if method.calls is not None and method.takes_objects:
        return method.calls, OWN.get(method.calls)
    owner = type(method)
    return f"{owner.__module__}:{owner.__qualname__}", owner


def _is_importable(path: str, value: Any) -> bool:
    """Whether another process would get this object by its path."""
    if path.startswith("__main__:") or "#" in path or "<" in path:
        return False
    try:
        return import_object(path, classes_of=LIBRARIES) is value
    except StudyError:
        return False


def _placed(
    plan: Plan, placement: Placement, runs: Sequence[RunWithId], estimator: Estimator
) -> Plan:
    """The plan with its place: as the user asks for it, else as the amount of work suggests."""
    if placement.on:
        return _on_ray(plan, placement, runs)
    processes = placement.workers or len(placement.devices)
    if processes > 1:
        return _in_processes(plan, processes, runs, estimator)
    if placement.workers == 1:
        return replace(plan, why=ASKED)
    if not placement.on_cores:
        return replace(plan, why="one GPU needs one process")
    return _by_work(plan, runs, estimator)


def _on_ray(plan: Plan, placement: Placement, runs: Sequence[RunWithId]) -> Plan:
    path = cannot_travel(runs)
    if path is None:
        return replace(plan, workers=placement.workers, why=ASKED)
    if placement.on_cores:
        return _kept_here(plan, _known_here_only(path))
    text = f"{path} is known in this Python only, so a Ray cluster cannot play it"
    raise StudyError(f"{text}; put it into a module, or leave `on` out", parameters=("on",))


def _in_processes(
    plan: Plan, processes: int, runs: Sequence[RunWithId], estimator: Estimator
) -> Plan:
    shared_bytes = estimator.data_bytes([run for _, run in runs])
    reason = _reason_to_stay(runs, shared_bytes)
    if reason:
        return _kept_here(plan, reason)
    count = min(processes, len(plan.blocks))
    if count < 2:
        return replace(plan, devices=plan.devices[:1], why="there is one block only")
    return replace(plan, workers=count, why=ASKED)


def _kept_here(plan: Plan, reason: str) -> Plan:
    """The plan for this process, although its user asked for others."""
    return replace(plan, devices=plan.devices[:1], on=None, why=reason, caution=reason)


def _by_work(plan: Plan, runs: Sequence[RunWithId], estimator: Estimator) -> Plan:
    """Worker processes where they pay: they must save twice what it takes to start them."""
    total = sum(block.seconds for block in plan.blocks)
    count = min(usable_cores(), len(plan.blocks), _processes_that_fit(plan))
    work = f"about {duration(max(total, 1))} of work on one core"
    if count < 2:
        why = "in one process: there is one core, one block, or memory for no more"
        return replace(plan, why=f"{work}, {why}")
    saved = total * (1 - 1 / count)
    if saved < 2 * START:
        why = "too little to be worth starting processes; ask for more workers to start them anyway"
        return replace(plan, why=f"{work}, {why}")
    guests = user_code_of(runs)
    if guests:
        why = f"with code of your own ({guests[0]}); ask for more workers to spread it"
        return replace(plan, why=f"{work}, {why}")
    shared_bytes = sum(size_of(data) for data in estimator.datasets.values())
    reason = _reason_to_stay(runs, shared_bytes)
    if reason:
        return replace(plan, why=reason)
    why = f"{duration(total / count)} here; ask for 1 worker to keep it in this process"
    return replace(plan, workers=count, why=f"{work}, {why}")


def _processes_that_fit(plan: Plan) -> int:
    """How many processes the memory suffices for, at least one."""
    free = free_memory("cpu")
    if free is None:
        return usable_cores()
    largest = max((block.bytes for block in plan.blocks), default=0)
    fitting = int(SHARE * free) // (PROCESS + largest)
    return max(fitting, 1)


def _reason_to_stay(runs: Sequence[RunWithId], shared_bytes: int) -> str | None:
    """Why the study must stay in this process, if it must."""
    if multiprocessing.current_process().daemon:
        return "this process is a daemon, which may not start others, so the study runs in it"
    path = cannot_travel(runs)
    if path:
        return _known_here_only(path)
    room = shared_memory()
    if room is not None and shared_bytes > room:
        sizes = f"{shared_bytes / 1e6:.0f} MB of data, and /dev/shm has {room / 1e6:.0f} MB left"
        remedy = "so the study runs in this process; give it more (docker: --shm-size)"
        return f"workers would share {sizes}, {remedy}"
    return None


def _known_here_only(path: str) -> str:
    remedy = "so the study runs in this process; put it into a module to use others"
    return f"{path} is known in this Python only, {remedy}"


def _side_by_side(plan: Plan, costs: Sequence[RunCost]) -> Plan:
    """Clients side by side on the cores that workers leave, if their steps are long enough.

    Every client is computed by one thread, so the number of cores changes nothing but the time.
    """
    if plan.on or not costs:
        return plan
    spare = usable_cores() // max(plan.workers or 1, 1)
    shortest = min(cost.step_seconds for cost in costs)
    if spare < 2 or shortest < WORTHWHILE:
        return plan
    fewest_rows = min(cost.rows for cost in costs)
    return replace(plan, side_by_side=max(1, min(spare, fewest_rows)))
