"""The one local loop: rows x steps. Federated clients, teachers and shadow models all train here.

Rows are sorted by work; a row that has done its last step leaves the batch, so a row's result does not depend on the
company it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, head, join, pick
from tacit.training.batches import Counts, Plan, gather
from tacit.training.gradients import GradientFunction
from tacit.training.optimisers import Optimiser, lean_update


@dataclass(frozen=True)
class Work:
    """A row's local work: what it is done with, and how much of it has been done."""

    steps: Tensor  # (K, 1), counted, never computed
    lr: Tensor  # (K, 1)
    samples: Tensor  # (K, 1)
    optimiser: Optimiser  # its float fields are columns
    state: Rows  # the optimiser's
    full_gradient: Tensor | None = None  # (K, P) at sent["x"], for rules that need it
    epochs: Tensor | None = None  # (K, 1), the passes over its data that were asked for


class Rule(Protocol):
    """What a method does to the gradient before the optimiser applies it."""

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor: ...


@dataclass(frozen=True)
class Block:
    """K rows on their way through the loop."""

    w: Tensor  # (K, P)
    work: Work
    rule: Rule
    sent: Rows
    mine: Rows
    buffers: Rows
    loss: Tensor  # (K, 1), summed over the samples seen
    hits: Tensor  # (K, 1), likewise
    seen: Tensor  # (K, 1)


def train(block: Block, plans: Sequence[Plan], x: Tensor, y: Tensor, gradient: GradientFunction) -> Block:
    """Takes every row through its plan. Row k's batches are the samples of (x, y) that `plans[k]` names."""
    order = sorted(range(len(plans)), key=lambda k: -len(plans[k]))
    plans = [plans[k] for k in order]
    block = pick(block, torch.tensor(order, device=block.w.device)) if len(order) > 1 else block
    finished, done = [], 0
    while len(plans):
        until = len(plans[-1])  # the least work left in the block
        block = _take_steps(block, [plan[done:until] for plan in plans], x, y, gradient)
        going = sum(len(plan) > until for plan in plans)
        finished.append(pick(block, slice(going, len(plans))) if going else block)
        block, plans, done = head(block, going) if going else block, plans[:going], until
    result: Block = join(finished[::-1])
    return pick(result, torch.tensor(order).argsort().to(result.w.device)) if len(order) > 1 else result


def _take_steps(block: Block, plans: Sequence[Plan], x: Tensor, y: Tensor, gradient: GradientFunction) -> Block:
    """As many steps as every row has a batch for. This is the hot path: what is not the step's own maths waits."""
    w, buffers, work = block.w, block.buffers, block.work
    update = lean_update(work.optimiser, w)
    tally: list[tuple[Tensor, Tensor, Counts]] = []
    for batches in zip(*plans, strict=True):
        batch = gather(x, y, batches)
        found = gradient(w, buffers, batch)
        g = block.rule.correct(found.g, w, block.sent, block.mine, work)
        check_gradient(g, w)
        w, state = update(w, g, work.state)
        work = replace(work, steps=work.steps + 1, state=state)
        buffers = found.buffers
        tally.append((found.loss, found.hits, batch.counts))
    return _tallied(replace(block, w=w, work=work, buffers=buffers), tally)


def check_gradient(g: Tensor, w: Tensor) -> None:
    """Refuses what a method's `correct` must not return."""
    if g.shape != w.shape:
        raise StudyError(f"correct must return one gradient per row, {tuple(w.shape)}; it returned {tuple(g.shape)}")


def _tallied(block: Block, tally: list[tuple[Tensor, Tensor, Counts]]) -> Block:
    """Adds the loss and the hits of these steps to the block's, each step weighted by its samples."""
    if not tally:
        return block
    losses, hits, counts = zip(*tally, strict=True)
    weights = torch.tensor(counts, dtype=block.w.dtype, device=block.w.device)[:, :, None]  # (steps, K, 1)
    return replace(
        block,
        loss=block.loss + (torch.stack(losses) * weights).sum(0),
        hits=block.hits + torch.stack(hits).sum(0),
        seen=block.seen + weights.sum(0),
    )
