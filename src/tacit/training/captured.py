"""The local loop on a GPU: the same steps as in `trainer.py`, captured once as a CUDA graph and replayed.

All that a step reads or writes lies in tensors that stay where they are: the rows of a block, the whole round's batch
indices, and the number of the step, which the step itself increments. So a round's steps are replayed one after the
other, and the host looks at nothing in between. Rows are sorted by work; for each number of rows still at work there is
a graph, and rows that have done their last step are left as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.core.rows import Rows, head, pick
from tacit.core.torch_private import copy_each
from tacit.training.batches import Batch, PackedBatches, Samples
from tacit.training.gradients import GradientFunction, Gradients
from tacit.training.optimisers import Adam, Optimiser
from tacit.training.trainer import LoopState, check_gradient

try:
    from tacit.training import kernels
except ImportError:  # no Triton
    kernels = None  # type: ignore[assignment]

UNROLLED = 8  # steps in a graph, where that many are to come: fewer gaps between graphs
ATTEMPTS = 3  # at recording: the first in a process may meet libraries that still set themselves up
SPARE = 1.25  # room for rounds with more rows or steps than this one, so that graphs need not be captured again


@dataclass
class Workspace:
    """The tensors that graphs know: rows of a block, the round's batches, and the number of the step."""

    block: LoopState
    plan: Tensor  # (steps, K, B)
    counts: Tensor  # (steps, K)
    step: Tensor  # (1,)
    graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = field(
        default_factory=dict
    )  # by rows and steps
    pool: Any = None  # the memory that they share: only one of them runs at a time


class CapturedTrainer:
    """Trains blocks of rows. Without `capture`, as on a CPU, the same steps are taken eagerly."""

    def __init__(
        self, gradient: GradientFunction, samples: Samples, *, capture: bool = True
    ) -> None:
        self.gradient, self.samples, self.capture = gradient, samples, capture
        self.why = ""  # steps could not be captured
        self.stages: dict[
            Any, Workspace
        ] = {}  # by what their blocks are made of: a round's work, fine-tuning

    def train(self, block: LoopState, plans: Sequence[PackedBatches]) -> LoopState:
        """Takes every row through its plan."""
        order = sorted(range(len(plans)), key=lambda k: -len(plans[k]))
        lengths = [len(plans[k]) for k in order]
        places = torch.tensor(order, device=block.w.device)
        stage = self._staged(pick(block, places), [plans[k] for k in order])
        done = 0
        while done < lengths[0]:
            active = sum(length > done for length in lengths)
            self._advance(stage, active, lengths[active - 1] - done)  # the least work left
            done = lengths[active - 1]
        return pick(
            head(stage.block, len(order)), places.argsort()
        )  # a copy: the stage is used again

    def _advance(self, stage: Workspace, active: int, steps: int) -> None:
        """So many steps of the first `active` rows."""
        while steps:
            count = UNROLLED if steps >= UNROLLED else 1
            if self.capture and (active, count) not in stage.graphs:
                self._capture(stage, active, count)
            if self.capture:
                stage.graphs[active, count].replay()
            else:
                self._steps(stage, active, count)
            steps -= count

    def _capture(self, stage: Workspace, active: int, count: int) -> None:
        """Records the steps; a method that cannot be recorded is run step by step."""
        before = [leaf.clone() for leaf in _leaves([stage.block, stage.step])]
        for _ in range(ATTEMPTS):
            try:
                stage.graphs[active, count] = self._recorded(stage, active, count)
                return
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.why = str(error)
            finally:
                _copy_leaves(_leaves([stage.block, stage.step]), before)
        self.capture = False
        reason = (self.why.splitlines() or [""])[0]
        warnings.warn(
            f"steps cannot be recorded as a CUDA graph and are taken one by one: {reason}",
            stacklevel=2,
        )

    def _recorded(self, stage: Workspace, active: int, count: int) -> torch.cuda.CUDAGraph:
        """The steps as a graph, after one to warm up."""
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._steps(stage, active, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=stage.pool):
            self._steps(stage, active, count)
        stage.pool = stage.pool or graph.pool()
        return graph

    def _steps(self, stage: Workspace, active: int, count: int) -> None:
        for _ in range(count):
            self._step(stage, active)

    @torch.no_grad()
    def _step(self, stage: Workspace, active: int) -> None:
        block = head(stage.block, active)
        batch = take_batch(self.samples, stage, active)
        with torch.enable_grad():
            drawing = () if block.seeds is None else (block.seeds, stage.step[0])
            found = self.gradient(block.w, block.buffers, batch, *drawing)
        g = found.g
        if block.rule is not None:
            g = block.rule.correct(g, block.w, block.sent, block.mine, block.work)
        check_gradient(g, block.w)
        add_to_tally(block, found, batch.column(g.device))
        update(block.work.optimiser, block.w, g, block.work.state)
        stage.step += 1

    def _staged(self, block: LoopState, plans: Sequence[PackedBatches]) -> Workspace:
        """The stage with this block and these plans on it; a new one if they do not fit on the old one."""
        rows, steps, width = len(plans), len(plans[0]), max(plan.index.shape[1] for plan in plans)
        key = (width, _signature(block))
        known = self.stages.get(key)
        if known is None:
            known = self.stages[key] = _make_stage(block, steps, rows, width)
        elif steps > known.counts.shape[0] or rows > known.counts.shape[1]:
            grown = [
                max(int(SPARE * new), old)
                for new, old in zip((steps, rows), known.counts.shape, strict=True)
            ]
            known = self.stages[key] = _make_stage(block, grown[0], grown[1], width)
        stage = known
        _copy_leaves(_leaves(head(stage.block, rows)), _leaves(block))
        index = torch.zeros(steps, rows, width, dtype=torch.int32, pin_memory=stage.plan.is_cuda)
        counts = torch.zeros(steps, rows, dtype=torch.int32, pin_memory=stage.plan.is_cuda)
        for k, plan in enumerate(plans):
            index[: len(plan), k, : plan.index.shape[1]] = plan.index
            counts[: len(plan), k] = plan.counts
        stage.plan[:steps, :rows].copy_(index, non_blocking=True)
        stage.counts[:steps, :rows].copy_(counts, non_blocking=True)
        stage.step.zero_()
        return stage


def take_batch(samples: Samples, stage: Workspace, active: int) -> Batch:
    """The batches of this step."""
    width = stage.plan.shape[2]
    if not _has_kernels(samples.x) or samples.y.dim() > 1:
        index = stage.plan.index_select(0, stage.step)[0, :active]
        counts = stage.counts.index_select(0, stage.step)[0, :active]
        y = samples.y.index_select(0, index.flatten()).view(*index.shape, *samples.y.shape[1:])
        return Batch(samples.take(index), y, counts, samples.packed)
    x = torch.empty(active, width, *samples.x.shape[1:], device=samples.x.device)
    y = torch.empty(active, width, dtype=samples.y.dtype, device=samples.y.device)
    counts = torch.empty(active, dtype=torch.int32, device=x.device)
    size = x[0, 0].numel()
    block = min(1024, max(32, 1 << (size - 1).bit_length()))
    kernels.take_batch[(active * width, -(-size // block))](
        *(samples.x, samples.y, stage.plan, stage.counts, stage.step, x, y, counts),
        *(stage.plan.shape[1], width, size), SCALE=samples.scale, SIGNED=samples.signed, BLOCK=block,
    )  # fmt: skip
    return Batch(x, y, counts, samples.packed)


def add_to_tally(block: LoopState, found: Gradients, counts: Tensor) -> None:
    """Counts the step, its loss and its hits, in place."""
    totals = (block.loss, block.hits, block.seen, block.work.steps)
    if _has_kernels(block.w):
        rows = len(counts)
        hits = found.hits.to(block.w.dtype)
        kernels.tally[(-(-rows // 64),)](found.loss, hits, counts, *totals, rows, BLOCK=64)
        return
    for total, more in zip(
        totals, (found.loss * counts, found.hits, counts, torch.ones_like(counts)), strict=True
    ):
        total += more


def update(optimiser: Optimiser, w: Tensor, g: Tensor, state: Rows) -> None:
    """The optimiser's step, in place."""
    if (
        type(optimiser) is Adam
        and _has_kernels(w)
        and all(row.stride() == w.stride() for row in (g, state["m"]))
    ):
        rows, size = w.shape
        g = g if optimiser.weight_decay is None else g + optimiser.weight_decay * w
        s1, s2 = state["s1"], state["s2"]
        kernels.adam_counts[(-(-rows // 64),)](
            s1, s2, optimiser.beta1, optimiser.beta2, rows, BLOCK=64
        )
        kernels.adam[(-(-size // 1024), rows)](
            *(w, g, state["m"], state["v"], s1, s2, optimiser.lr, optimiser.eps, w.stride(0), size),
            BLOCK=1024,
        )
        return
    new, after = optimiser.update(w, g, state)
    w.copy_(new)
    for name, rows_ in after.items():
        state[name].copy_(rows_)


def _has_kernels(x: Tensor) -> bool:
    return kernels is not None and x.is_cuda and x.dtype in (torch.float32, torch.uint8)


def _make_stage(block: LoopState, steps: int, rows: int, width: int) -> Workspace:
    """Room for that many rows and steps; every tensor has memory of its own."""
    device = block.w.device
    plan = torch.zeros(steps, rows, width, dtype=torch.int32, device=device)
    made = _map(lambda leaf: leaf.new_zeros(rows, *leaf.shape[1:]), block)
    return Workspace(
        made, plan, plan.new_zeros(steps, rows), torch.zeros(1, dtype=torch.int64, device=device)
    )


def _map(change: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {name: _map(change, value) for name, value in tree.items()}
    if is_dataclass(tree):
        made: Any = object.__new__(type(tree))
        for item in fields(tree):
            object.__setattr__(made, item.name, _map(change, getattr(tree, item.name)))
        return made
    return tree


def _leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree, always in the same order."""
    if isinstance(tree, list):
        return [leaf for part in tree for leaf in _leaves(part)]
    found: list[Tensor] = []
    _map(found.append, tree)
    return found


def _copy_leaves(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies tensors of one type together: among mixed ones, torch copies one by one."""
    for dtype in {target.dtype for target in targets}:
        places = [k for k, target in enumerate(targets) if target.dtype == dtype]
        copy_each([targets[k] for k in places], [sources[k] for k in places])


def _signature(tree: Any) -> str:
    """Equal for blocks that the same steps can be taken with."""
    kinds = _map(lambda leaf: (tuple(leaf.shape[1:]), leaf.dtype), tree)
    return repr(_plain(kinds))


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return [(name, _plain(value)) for name, value in tree.items()]
    if is_dataclass(tree):
        return type(tree).__qualname__, [_plain(getattr(tree, item.name)) for item in fields(tree)]
    return tree
