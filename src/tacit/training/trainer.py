"""The one local loop: rows x steps. Federated clients, teachers and shadow models all train here.

Rows are sorted by work, and a row that has done its last step leaves the others. So a row's result
does not depend on which rows are trained with it.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, head, join, pick
from tacit.training.batches import BatchIndices, SampleCounts, gather
from tacit.training.gradients import GradientFunction
from tacit.training.optimisers import Optimiser, lean_update


@dataclass(frozen=True)
class Work:
    """The local work of K rows: by which optimiser, with what data, and how much has been done."""

    steps: Tensor  # (K, 1), counted, never computed
    lr: Tensor  # (K, 1)
    samples: Tensor  # (K, 1)
    optimiser: Optimiser  # its float fields are columns
    state: Rows  # the optimiser's
    full_gradient: Tensor | None = None  # (K, P) at sent["x"], for rules that need it
    epochs: Tensor | None = None  # (K, 1), the passes over its data that were asked for


# losses, hits and samples of some steps, each summed over the step's batch, (steps, K, 1) each
StepSums = tuple[Tensor, Tensor, Tensor]


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
    seen: Tensor  # (K, 1), how many samples that were
    seeds: Tensor | None = None  # (K,), for gradient functions that draw numbers


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
    seen: Tensor  # (K, 1), how many samples that were

    @classmethod
    def of(cls, loop_state: LoopState) -> Trained:
        return cls(
            w=loop_state.w,
            work=loop_state.work,
            sent=loop_state.sent,
            mine=loop_state.mine,
            buffers=loop_state.buffers,
            loss=loop_state.loss,
            hits=loop_state.hits,
            seen=loop_state.seen,
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
    """The work on rows w (K, P) before its first step.

    `start` is the optimiser's state, if it is not the initial one.
    """
    zero = w.new_zeros(len(w), 1)
    if samples is None:
        samples = zero
    if start is None:
        start = optimiser.init(w)
    return Work(
        steps=zero,
        lr=optimiser.lr,  # type: ignore[arg-type]  # a column, as all its float fields are
        samples=samples,
        optimiser=optimiser,
        state=start,
        full_gradient=full_gradient,
        epochs=epochs,
    )


def train(
    loop_state: LoopState,
    batches: Sequence[BatchIndices],
    x: Tensor,
    y: Tensor,
    gradient: GradientFunction,
) -> LoopState:
    """Takes every row through its batches.

    `batches[k]` holds the index tensors of row k, one per step; they name samples of (x, y).
    """
    order = longest_first(batches)
    remaining = [batches[k] for k in order]
    if len(order) > 1:
        positions = torch.tensor(order, device=loop_state.w.device)
        loop_state = pick(loop_state, positions)
    finished = []
    sums = []
    done = 0
    while remaining:
        until = len(remaining[-1])  # the row with the least work left finishes there
        next_batches = [row_batches[done:until] for row_batches in remaining]
        loop_state, new_sums = _take_steps(loop_state, next_batches, done, (x, y), gradient)
        sums += new_sums
        done = until
        active = sum(len(row_batches) > done for row_batches in remaining)
        if not active:
            finished.append(loop_state)
            break
        done_rows = slice(active, len(remaining))
        finished.append(pick(loop_state, done_rows))
        loop_state = head(loop_state, active)
        remaining = remaining[:active]
    trained: LoopState = _add_sums(join(finished[::-1]), sums)
    if len(order) > 1:
        positions = torch.tensor(order).argsort()
        trained = pick(trained, positions.to(trained.w.device))
    return trained


def longest_first(batches: Sequence[Sized]) -> list[int]:
    """The rows in the order of their work, those with most steps first."""
    return sorted(range(len(batches)), key=lambda k: -len(batches[k]))


def _take_steps(
    loop_state: LoopState,
    batches: Sequence[BatchIndices],
    first: int,
    samples: tuple[Tensor, Tensor],
    gradient: GradientFunction,
) -> tuple[LoopState, list[StepSums]]:
    """As many steps as every row has a batch for, numbered from `first`.

    This is the hot path: whatever the step itself does not need is done afterwards.
    """
    w = loop_state.w
    buffers = loop_state.buffers
    work = loop_state.work
    rule = loop_state.rule
    update = lean_update(work.optimiser, w)
    figures: list[tuple[Tensor, Tensor, SampleCounts]] = []
    for step, indices in enumerate(zip(*batches, strict=True), first):
        batch = gather(*samples, indices)
        gradients = gradient(w, buffers, batch, *draws_from(loop_state.seeds, step))
        g = gradients.g
        if rule is not None:
            g = rule.correct(g, w, loop_state.sent, loop_state.mine, work)
        check_gradient(g, w)
        w, optimiser_state = update(w, g, work.state)
        work = replace(work, steps=work.steps + 1, state=optimiser_state)
        buffers = gradients.buffers
        figures.append((gradients.loss, gradients.hits, batch.counts))
    after = replace(loop_state, w=w, work=work, buffers=buffers)
    return after, _sum_over_batches(figures, w)


def draws_from(seeds: Tensor | None, step: int) -> tuple[Tensor, ...]:
    """What a gradient function draws its numbers from: the rows' seeds and the step's number.

    It is empty for gradient functions that do not draw.
    """
    if seeds is None:
        return ()
    number = torch.full((), step, dtype=torch.int64, device=seeds.device)
    return seeds, number


def check_gradient(g: Tensor, w: Tensor) -> None:
    """Refuses a gradient of another shape, which a method's `correct` may have returned."""
    if g.shape != w.shape:
        raise StudyError(
            f"correct must return one gradient per row, {tuple(w.shape)}; "
            f"it returned {tuple(g.shape)}"
        )


def _sum_over_batches(
    figures: list[tuple[Tensor, Tensor, SampleCounts]], w: Tensor
) -> list[StepSums]:
    """The sums of these steps, from each step's mean loss, hits and counts."""
    if not figures:
        return []
    losses, hits, counts = zip(*figures, strict=True)
    samples = torch.tensor(counts, dtype=w.dtype, device=w.device)[:, :, None]
    weighted_losses = torch.stack(losses) * samples
    return [(weighted_losses, torch.stack(hits), samples)]


def _add_sums(loop_state: LoopState, sums: list[StepSums]) -> LoopState:
    """The rows with the sums over all steps.

    Rows are in the order of their work, so the first have taken most steps.
    """
    if not sums:
        return loop_state
    rows = len(loop_state.w)
    losses, hits, samples = zip(*sums, strict=True)
    return replace(
        loop_state,
        loss=loop_state.loss + _sum_over_steps(losses, rows),
        hits=loop_state.hits + _sum_over_steps(hits, rows),
        seen=loop_state.seen + _sum_over_steps(samples, rows),
    )


def _sum_over_steps(values: Sequence[Tensor], rows: int) -> Tensor:
    """Each row's sum over its steps. # (steps, up to K, 1) each -> (K, 1)

    A row's steps are added up at once and without the other rows', so that the sum does not depend
    on them.
    """
    if rows == 1:
        return values[0].sum(0)
    sums = []
    for row in range(rows):
        steps = [value[:, row] for value in values if row < value.shape[1]]
        row_sum = torch.cat(steps).sum(0) if steps else values[0].new_zeros(1)
        sums.append(row_sum)
    return torch.stack(sums)
