"""A plan: which blocks of runs are played, and where; in plain words too, with a small table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.records.tally import duration

MANY = 20  # blocks; no more are shown one by one
HEADER = ("block", "runs", "rows", "at a time", "steps a round", "steps", "memory", "about")


@dataclass(frozen=True)
class Block:
    """Runs that are played together; `index` is the place of the first one in the study."""

    index: int
    runs: tuple[str, ...]
    rows: int  # clients that train in a round, of all runs
    at_once: int  # of those, trained together
    round_steps: int
    steps: int
    bytes: int
    seconds: float  # on one core


@dataclass(frozen=True)
class Plan:
    """Which blocks are played, and where."""

    blocks: tuple[Block, ...]
    devices: tuple[str, ...]
    workers: int | None  # processes; 0 is this one; None: as many as the cluster has room for
    threads: int | None  # of each; None: as many as torch takes
    on: str | None
    why: str  # it is so
    beside: int = 1  # clients that each process trains side by side, one thread each
    caution: str | None = None  # why it is not as was asked

    @property
    def place(self) -> str:
        """Where, in words."""
        if self.on:
            some = (
                "as many workers as there is room for"
                if self.workers is None
                else f"{self.workers} workers"
            )
            return f"{some} of the Ray cluster {self.on}, on {self.devices[0]}"
        device = ", ".join(self.devices)
        return (
            f"{self.workers} worker processes, on {device}"
            if self.workers
            else f"this process, on {device}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {**asdict(self), "blocks": [asdict(block) for block in self.blocks]}

    def __str__(self) -> str:
        return plan_text(self)


def plan_text(plan: Plan) -> str:
    """What would be done, and why there."""
    if not plan.blocks:
        return "nothing is left to do"
    runs, steps = (
        sum(len(block.runs) for block in plan.blocks),
        sum(block.steps for block in plan.blocks),
    )
    threads = "" if plan.threads is None else f", with {_count(plan.threads, 'thread')} each"
    threads += f", {plan.beside} clients side by side" if plan.beside > 1 else ""
    rows = [HEADER, *(_row(block) for block in plan.blocks[:MANY])]
    if plan.devices != ("cpu",):  # what is told of seconds is about cores
        rows = [row[:-1] for row in rows]
    lines = [
        f"{_count(runs, 'run')} in {_count(len(plan.blocks), 'block')}, {_count(steps, 'local step')}",
        f"in {plan.place}{threads}: {plan.why}",
        "",
        *_table(rows),
    ]
    more = len(plan.blocks) - MANY
    return "\n".join([*lines, f"... and {more:,} more blocks"] if more > 0 else lines)


def _row(block: Block) -> tuple[str, ...]:
    name = (
        block.runs[0] if len(block.runs) == 1 else f"{block.runs[0]} and {len(block.runs) - 1} more"
    )
    numbers = (block.rows, block.at_once, block.round_steps, block.steps)
    memory = f"{block.bytes / 1e6:,.1f} MB"
    return (
        str(block.index),
        name,
        *(f"{number:,}" for number in numbers),
        memory,
        duration(max(block.seconds, 1)),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    texts = [
        [
            cell.ljust(w) if k == 1 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    return ["  ".join(cells).rstrip() for cells in texts]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
