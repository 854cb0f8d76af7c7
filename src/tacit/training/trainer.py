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


Tally = tuple[Tensor, Tensor, Tensor]  # losses, hits and samples of some steps, (steps, K, 1) each


class Rule(Protocol):
    """What a method does to the gradient before the optimiser applies it."""

    def correct(self, g: Tensor, w: Tensor, sent: Rows, mine: Rows, work: Work) -> Tensor: ...


@dataclass(frozen=True)
class LoopState:
    """K rows on their way through the loop."""

    w: Tensor  # (K, P)
    work: Work
    rule: Rule | None  # None: the gradient is applied as it is
    sent: Rows
    mine: Rows
    buffers: Rows
    loss: Tensor  # (K, 1), summed over the samples seen
    hits: Tensor  # (K, 1), likewise
    seen: Tensor  # (K, 1)
    seeds: Tensor | None = (
        None  # (K,), for gradient functions that want them and the number of the step
    )


@dataclass(frozen=True)
class Trained:
    """K rows after their last step."""

    w: Tensor  # (K, P)
    work: Work
    sent: Rows
    mine: Rows
    buffers: Rows
    loss: Tensor  # (K, 1), summed over the samples seen
    hits: Tensor  # (K, 1), likewise
    seen: Tensor  # (K, 1)

    @classmethod
    def of(cls, block: LoopState) -> Trained:
        return cls(
            w=block.w,
            work=block.work,
            sent=block.sent,
            mine=block.mine,
            buffers=block.buffers,
            loss=block.loss,
            hits=block.hits,
            seen=block.seen,
        )


def begin_work(
    w: Tensor,
    optimiser: Optimiser,
    start: Rows | None = None,
    *,
    samples: Tensor | None = None,
    epochs: Tensor | None = None,
    full_gradient: Tensor | None = None,
) -> Work:
    """The work on rows w (K, P) before its first step; `start` is the optimiser's state, if not its first one."""
    zero = w.new_zeros(len(w), 1)
    return Work(
        steps=zero,
        lr=optimiser.lr,  # type: ignore[arg-type]  # a column, as all its float fields are
        samples=zero if samples is None else samples,
        optimiser=optimiser,
        state=optimiser.init(w) if start is None else start,
        full_gradient=full_gradient,
        epochs=epochs,
    )


def train(
    block: LoopState, plans: Sequence[Plan], x: Tensor, y: Tensor, gradient: GradientFunction
) -> LoopState:
    """Takes every row through its plan. Row k's batches are the samples of (x, y) that `plans[k]` names."""
    order = sorted(range(len(plans)), key=lambda k: -len(plans[k]))
    plans = [plans[k] for k in order]
    block = pick(block, torch.tensor(order, device=block.w.device)) if len(order) > 1 else block
    finished, tallies, done = [], [], 0
    while len(plans):
        until = len(plans[-1])  # the least work left in the block
        block, tally = _take_steps(
            block, [plan[done:until] for plan in plans], done, (x, y), gradient
        )
        going = sum(len(plan) > until for plan in plans)
        finished.append(pick(block, slice(going, len(plans))) if going else block)
        tallies += tally
        block, plans, done = head(block, going) if going else block, plans[:going], until
    result: LoopState = _tallied(join(finished[::-1]), tallies)
    return (
        pick(result, torch.tensor(order).argsort().to(result.w.device))
        if len(order) > 1
        else result
    )


def _take_steps(
    block: LoopState,
    plans: Sequence[Plan],
    first: int,
    samples: tuple[Tensor, Tensor],
    gradient: GradientFunction,
) -> tuple[LoopState, list[Tally]]:
    """As many steps as every row has a batch for. This is the hot path: what is not the step's own maths waits."""
    w, buffers, work = block.w, block.buffers, block.work
    rule = block.rule
    update = lean_update(work.optimiser, w)
    tallies: list[tuple[Tensor, Tensor, Counts]] = []
    for step, batches in enumerate(zip(*plans, strict=True), first):
        batch = gather(*samples, batches)
        found = gradient(w, buffers, batch, *draws_from(block.seeds, step))
        g = found.g
        if rule is not None:
            g = rule.correct(g, w, block.sent, block.mine, work)
        check_gradient(g, w)
        w, state = update(w, g, work.state)
        work = replace(work, steps=work.steps + 1, state=state)
        buffers = found.buffers
        tallies.append((found.loss, found.hits, batch.counts))
    return replace(block, w=w, work=work, buffers=buffers), _weighed(tallies, w)


def draws_from(seeds: Tensor | None, step: int) -> tuple[Tensor, ...]:
    """What a gradient function draws its numbers from, where it wants to: the rows' seeds and the step's number."""
    return (
        ()
        if seeds is None
        else (seeds, torch.full((), step, dtype=torch.int64, device=seeds.device))
    )


def check_gradient(g: Tensor, w: Tensor) -> None:
    """Refuses what a method's `correct` must not return."""
    if g.shape != w.shape:
        raise StudyError(
            f"correct must return one gradient per row, {tuple(w.shape)}; it returned {tuple(g.shape)}"
        )


def _weighed(tallies: list[tuple[Tensor, Tensor, Counts]], w: Tensor) -> list[Tally]:
    """Losses, hits and samples of these steps, each loss weighted by its samples; of no step, nothing."""
    if not tallies:
        return []
    losses, hits, counts = zip(*tallies, strict=True)
    samples = torch.tensor(counts, dtype=w.dtype, device=w.device)[:, :, None]
    return [(torch.stack(losses) * samples, torch.stack(hits), samples)]


def _tallied(block: LoopState, tallies: list[Tally]) -> LoopState:
    """The block with the sums over all steps. Rows are in the order of their work, so the first have taken most.

    A row's steps are added up in one go, without the other rows': its sum does not depend on them.
    """
    if not tallies:
        return block
    loss, hits, seen = (_sum_of_steps(parts, len(block.w)) for parts in zip(*tallies, strict=True))
    return replace(block, loss=block.loss + loss, hits=block.hits + hits, seen=block.seen + seen)


def _sum_of_steps(parts: Sequence[Tensor], rows: int) -> Tensor:
    """Each row's sum over its steps. # (steps, up to K, 1) each -> (K, 1)"""
    if rows == 1:
        return parts[0].sum(0)
    sums = []
    for row in range(rows):
        steps = [part[:, row] for part in parts if row < part.shape[1]]
        sums.append(torch.cat(steps).sum(0) if steps else parts[0].new_zeros(1))
    return torch.stack(sums)
