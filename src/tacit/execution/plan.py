"""A plan: which blocks of runs are played, and where. `str(plan)` says it in words and a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.records.tally import duration

MANY = 20  # blocks; no more are shown one by one
HEADER = ("block", "runs", "rows", "at a time", "steps a round", "steps", "memory", "about")
NAMES = HEADER.index("runs")  # the column of names, which is set flush left
JSON_NAMES = {"side_by_side": "beside"}  # where the JSON output has another name


@dataclass(frozen=True)
class Block:
    """Runs that are played together; `index` is the position of the first one in the study."""

    index: int
    runs: tuple[str, ...]
    rows: int  # clients that train in a round, of all runs
    at_once: int  # rows that are trained together
    round_steps: int
    steps: int
    bytes: int
    seconds: float  # on one core


@dataclass(frozen=True)
class Plan:
    """Which blocks are played, and where."""

    blocks: tuple[Block, ...]
    devices: tuple[str, ...]
    workers: int | None  # processes; 0: this one; None: as many as the cluster has room for
    threads: int | None  # of each process; None: as many as torch takes
    on: str | None  # a Ray cluster
    why: str  # the reason for this place
    side_by_side: int = 1  # clients that each process trains at a time, one thread each
    caution: str | None = None  # why the place is not the one that was asked for

    @property
    def place(self) -> str:
        """Where, in words."""
        if self.on:
            if self.workers is None:
                workers = "as many workers as there is room for"
            else:
                workers = f"{self.workers} workers"
            return f"{workers} of the Ray cluster {self.on}, on {self.devices[0]}"
        processes = f"{self.workers} worker processes" if self.workers else "this process"
        return f"{processes}, on {', '.join(self.devices)}"

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        values = {JSON_NAMES.get(name, name): value for name, value in asdict(self).items()}
        values["blocks"] = [asdict(block) for block in self.blocks]
        return values

    def __str__(self) -> str:
        return plan_text(self)


def plan_text(plan: Plan) -> str:
    """What would be done, where and why there, in words and a table of blocks."""
    if not plan.blocks:
        return "nothing is left to do"
    lines = [_amount(plan.blocks), _place(plan), "", *_table(plan)]
    more = len(plan.blocks) - MANY
    if more > 0:
        lines.append(f"... and {more:,} more blocks")
    return "\n".join(lines)


def _amount(blocks: tuple[Block, ...]) -> str:
    runs = sum(len(block.runs) for block in blocks)
    steps = sum(block.steps for block in blocks)
    divided = f"{_count(runs, 'run')} in {_count(len(blocks), 'block')}"
    return f"{divided}, {_count(steps, 'local step')}"


def _place(plan: Plan) -> str:
    text = f"in {plan.place}"
    if plan.threads is not None:
        text += f", with {_count(plan.threads, 'thread')} each"
    if plan.side_by_side > 1:
        text += f", {plan.side_by_side} clients side by side"
    return f"{text}: {plan.why}"


def _table(plan: Plan) -> list[str]:
    blocks = plan.blocks[:MANY]
    rows = [HEADER, *map(_row, blocks)]
    if plan.devices != ("cpu",):  # the estimate of seconds is for cores
        rows = [row[:-1] for row in rows]
    return _aligned(rows)


def _row(block: Block) -> tuple[str, ...]:
    name = block.runs[0]
    more = len(block.runs) - 1
    if more:
        name += f" and {more} more"
    return (
        str(block.index),
        name,
        f"{block.rows:,}",
        f"{block.at_once:,}",
        f"{block.round_steps:,}",
        f"{block.steps:,}",
        f"{block.bytes / 1e6:,.1f} MB",
        duration(max(block.seconds, 1)),
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The rows as lines; names are flush left, numbers flush right."""
    columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[NAMES] = row[NAMES].ljust(widths[NAMES])
        lines.append("  ".join(cells).rstrip())
    return lines


def _count(number: int, noun: str) -> str:
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"
