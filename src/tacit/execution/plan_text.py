"""A plan in plain words, and a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.records.tally import duration

if TYPE_CHECKING:
    from tacit.execution.planner import Block, Plan

MANY = 20  # blocks; no more are shown one by one
HEADER = ("block", "runs", "rows", "at a time", "steps a round", "steps", "memory", "about")


def plan_text(plan: Plan) -> str:
    """What would be done, and why there."""
    if not plan.blocks:
        return "nothing is left to do"
    runs, steps = sum(len(block.runs) for block in plan.blocks), sum(block.steps for block in plan.blocks)
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
    name = block.runs[0] if len(block.runs) == 1 else f"{block.runs[0]} and {len(block.runs) - 1} more"
    numbers = (block.rows, block.at_once, block.round_steps, block.steps)
    memory = f"{block.bytes / 1e6:,.1f} MB"
    return (str(block.index), name, *(f"{number:,}" for number in numbers), memory, duration(max(block.seconds, 1)))


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    texts = [
        [cell.ljust(w) if k == 1 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]
    return ["  ".join(cells).rstrip() for cells in texts]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
