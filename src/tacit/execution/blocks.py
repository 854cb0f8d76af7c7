"""Divides a study into blocks of runs that need nothing of each other.

On a GPU, runs whose clients do the same work are one block, one batched program. On a CPU rows are
looped, so nearly every run is a block of its own: many small blocks are easier to spread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tacit.core.rows import batch_key
from tacit.execution.devices import free_memory
from tacit.execution.estimates import Estimator, RunCost
from tacit.execution.placement import Placement
from tacit.execution.plan import Block
from tacit.federated.client_side import client_class
from tacit.study.texts import plain
from tacit.study.user_code import RunWithId

SHARE = 0.8  # of the free memory, which is planned with


class BlockMaker:
    """Makes the blocks of a study's runs, except for runs that are done."""

    def __init__(
        self, runs: Sequence[RunWithId], done: Collection[str], estimator: Estimator
    ) -> None:
        self.estimator = estimator
        self.positions = {id: position for position, (id, _) in enumerate(runs)}
        self.runs = [(id, run) for id, run in runs if id not in done]
        self.costs = {id: estimator.cost(run) for id, run in self.runs}

    def for_cores(self) -> list[Block]:
        """A block for every run.

        Runs of a single round that share its work are one block: their clients train once for all.
        """
        groups: dict[str, list[RunWithId]] = {}
        for id, run in self.runs:
            shared_work = run.shared_work() if run.rounds == 1 else None
            groups.setdefault(shared_work or id, []).append((id, run))
        return _sorted([self._block(group) for group in groups.values()])

    def for_gpus(self, placement: Placement) -> list[Block]:
        """Blocks of runs that share a batch.

        Each group of such runs is divided among the devices, and further where its runs' states
        would fill half of the memory.
        """
        room = None
        devices = placement.workers or 1  # of the cluster, which says nothing of its memory
        if not placement.on:
            room = planned_memory(placement.devices)
            devices = len(placement.devices)
        blocks = []
        for group in group_runs(self.runs):
            count = devices
            if room is not None:
                count = max(devices, self._fewest_blocks(group, room))
            for runs in divided(group, min(count, len(group)), self.costs):
                row_bytes = max(self.costs[id].row_bytes for id, _ in runs)
                blocks.append(fitted(self._block(runs), row_bytes, room))
        return _sorted(blocks)

    def _fewest_blocks(self, group: list[RunWithId], room: int) -> int:
        """How many blocks keep the states of each one's runs below half of the memory."""
        held = sum(self.costs[id].held_bytes for id, _ in group)
        _, first = group[0]
        left = room - self.estimator.data_bytes([first])
        return math.ceil(2 * held / max(left, 1))

    def _block(self, group: list[RunWithId]) -> Block:
        """A block that trains one row at a time."""
        costs = self._costs_together(group)
        data_bytes = self.estimator.data_bytes([run for _, run in group])
        held_bytes = sum(cost.held_bytes for cost in costs)
        row_bytes = max(cost.row_bytes for cost in costs)
        ids = tuple(id for id, _ in group)
        rows = sum(cost.rows for cost in costs)
        round_steps = sum(cost.round_steps for cost in costs)
        steps = sum(cost.steps for cost in costs)
        seconds = sum(cost.seconds for cost in costs)
        return Block(
            index=self.positions[ids[0]],
            runs=ids,
            rows=rows,
            at_once=1,
            round_steps=round_steps,
            steps=steps,
            bytes=data_bytes + held_bytes + row_bytes,
            seconds=seconds,
        )

    def _costs_together(self, group: list[RunWithId]) -> list[RunCost]:
        """What each run adds: one whose first round another has trained need not train it again."""
        trained: set[str] = set()
        costs = []
        for id, run in group:
            cost = self.costs[id]
            work = run.shared_work()
            if work in trained:
                steps = cost.steps - cost.round_steps
                left = 1 - 1 / run.rounds
                cost = replace(cost, steps=steps, seconds=left * cost.seconds)
            if work is not None:
                trained.add(work)
            costs.append(cost)
        return costs


def group_runs(runs: Sequence[RunWithId]) -> list[list[RunWithId]]:
    """Groups of runs whose clients do the same work up to float settings.

    Their rows can share a batch, and have one loss.
    """
    groups: dict[str, list[RunWithId]] = {}
    for id, run in runs:
        algorithm = run.client_algorithm
        hooks = batch_key(algorithm, client_class(type(algorithm)))
        optimiser = batch_key(run.optimiser, type(run.optimiser))
        model = plain(run.model)
        data = [plain(run.dataset), plain(run.public)]
        loss = plain(run.loss)
        key = str((run.engine, hooks, optimiser, algorithm.sends, model, loss, data))
        groups.setdefault(key, []).append((id, run))
    return list(groups.values())


def divided(
    group: Sequence[RunWithId], count: int, costs: Mapping[str, RunCost]
) -> list[list[RunWithId]]:
    """The group in that many shares of about equal work; each keeps the study's order."""
    steps = [costs[id].steps for id, _ in group]
    largest_first = sorted(range(len(group)), key=lambda position: -steps[position])
    shares: list[list[int]] = [[] for _ in range(count)]

    def load(share: list[int]) -> tuple[int, int]:
        return sum(steps[position] for position in share), len(share)

    def in_order(share: list[int]) -> list[RunWithId]:
        return [group[position] for position in sorted(share)]

    for position in largest_first:
        lightest = min(shares, key=load)
        lightest.append(position)
    return [in_order(share) for share in shares if share]


def fitted(block: Block, row_bytes: int, room: int | None) -> Block:
    """The block with all rows at once, or with as many as there is room for, in bytes."""
    fixed = block.bytes - row_bytes
    at_once = block.rows
    if room is not None:
        fitting = (room - fixed) // row_bytes
        at_once = min(block.rows, max(1, fitting))
    return replace(block, at_once=at_once, bytes=fixed + at_once * row_bytes)


def planned_memory(devices: Sequence[str]) -> int | None:
    """Bytes to plan with on every device; a device that is named twice is shared."""
    rooms = []
    for name in devices:
        free = free_memory(name)
        if free is not None:
            rooms.append(int(SHARE * free / devices.count(name)))
    return min(rooms, default=None)


def _sorted(blocks: list[Block]) -> list[Block]:
    return sorted(blocks, key=lambda block: block.index)
