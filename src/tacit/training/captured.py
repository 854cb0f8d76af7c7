"""The local loop on a GPU: the steps of `trainer.py`, captured once as a CUDA graph and replayed.

All that a step reads or writes lies in tensors that stay where they are: the rows, the batch
indices of the whole round, and the number of the step, which the step itself increments. So a
round's steps are replayed one after the other, and the host looks at nothing in between. Rows are
sorted by work; for each number of rows still at work there is a graph, and rows that have done
their last step are left as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.rows import Rows, head, pick
from tacit.training.batches import Batch, PackedBatches, Samples
from tacit.training.gradients import GradientFunction, Gradients
from tacit.training.optimisers import Adam, Optimiser
from tacit.training.trainer import LoopState, check_gradient, longest_first
from tacit.training.workspace import Workspace, Workspaces, copy_tensors

try:
    from tacit.training import step_kernels
except ImportError:  # no Triton
    step_kernels = None  # type: ignore[assignment]

UNROLLED = 8  # steps in a graph, where that many are to come: fewer gaps between graphs
ATTEMPTS = 3  # at recording: the first in a process may meet libraries that still set themselves up


class CapturedTrainer:
    """Trains rows. Without `capture`, as on a CPU, the same steps are taken eagerly."""

    def __init__(
        self, gradient: GradientFunction, samples: Samples, *, capture: bool = True
    ) -> None:
        self.gradient = gradient
        self.samples = samples
        self.capture = capture
        self.capture_error = ""  # the text of the last error, where steps could not be recorded
        self.workspaces = Workspaces()

    def train(self, loop_state: LoopState, batches: Sequence[PackedBatches]) -> LoopState:
        """Takes every row through its batches."""
        order = longest_first(batches)
        positions = torch.tensor(order, device=loop_state.w.device)
        sorted_batches = [batches[k] for k in order]
        workspace = self.workspaces.prepare(pick(loop_state, positions), sorted_batches)
        lengths = [len(row_batches) for row_batches in sorted_batches]
        done = 0
        while done < lengths[0]:
            active = sum(length > done for length in lengths)
            until = lengths[active - 1]  # the active row with the least work left finishes there
            self._advance(workspace, active, until - done)
            done = until
        trained = head(workspace.loop_state, len(order))
        return pick(trained, positions.argsort())  # a copy: the workspace is used again

    def _advance(self, workspace: Workspace, active: int, steps: int) -> None:
        """So many steps of the first `active` rows."""
        while steps:
            count = UNROLLED if steps >= UNROLLED else 1
            if self.capture and (active, count) not in workspace.graphs:
                self._capture(workspace, active, count)
            if self.capture:
                workspace.graphs[active, count].replay()
            else:
                self._take_steps(workspace, active, count)
            steps -= count

    def _capture(self, workspace: Workspace, active: int, count: int) -> None:
        """Records the steps; if that is not possible, steps are taken one by one from now on."""
        before = [tensor.clone() for tensor in workspace.state_tensors()]
        for _ in range(ATTEMPTS):
            try:
                workspace.graphs[active, count] = self._record(workspace, active, count)
                return
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.capture_error = str(error)
            finally:
                copy_tensors(workspace.state_tensors(), before)
        self.capture = False
        first_line = self.capture_error.partition("\n")[0]
        warnings.warn(
            f"steps cannot be recorded as a CUDA graph and are taken one by one: {first_line}",
            stacklevel=2,
        )

    def _record(self, workspace: Workspace, active: int, count: int) -> torch.cuda.CUDAGraph:
        """The steps as a graph, after one step to warm up."""
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._take_steps(workspace, active, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=workspace.pool):
            self._take_steps(workspace, active, count)
        workspace.pool = workspace.pool or graph.pool()
        return graph

    def _take_steps(self, workspace: Workspace, active: int, count: int) -> None:
        for _ in range(count):
            self._take_step(workspace, active)

    @torch.no_grad()
    def _take_step(self, workspace: Workspace, active: int) -> None:
        loop_state = head(workspace.loop_state, active)
        w = loop_state.w
        work = loop_state.work
        batch = take_batch(self.samples, workspace, active)
        with torch.enable_grad():
            draws = () if loop_state.seeds is None else (loop_state.seeds, workspace.step[0])
            gradients = self.gradient(w, loop_state.buffers, batch, *draws)
        g = gradients.g
        if loop_state.rule is not None:
            g = loop_state.rule.correct(g, w, loop_state.sent, loop_state.mine, work)
        check_gradient(g, w)
        add_to_totals(loop_state, gradients, batch.column(g.device))
        update(work.optimiser, w, g, work.state)
        workspace.step += 1


def take_batch(samples: Samples, workspace: Workspace, active: int) -> Batch:
    """The batches of this step, one for each active row."""
    if _has_kernels(samples.x) and samples.y.dim() <= 1:
        return _take_batch_by_kernel(samples, workspace, active)
    step = workspace.step
    index = workspace.index.index_select(0, step)[0, :active]
    counts = workspace.counts.index_select(0, step)[0, :active]
    y = samples.y.index_select(0, index.flatten())
    y = y.view(*index.shape, *samples.y.shape[1:])
    return Batch(samples.take(index), y, counts, samples.packed)


def _take_batch_by_kernel(samples: Samples, workspace: Workspace, active: int) -> Batch:
    _, capacity, width = workspace.index.shape
    x = torch.empty(active, width, *samples.x.shape[1:], device=samples.x.device)
    y = torch.empty(active, width, dtype=samples.y.dtype, device=samples.y.device)
    counts = torch.empty(active, dtype=torch.int32, device=x.device)
    size = x[0, 0].numel()
    block = min(1024, max(32, 1 << (size - 1).bit_length()))
    grid = (active * width, _programs(size, block))
    step_kernels.take_batch[grid](
        samples.x, samples.y, workspace.index, workspace.counts, workspace.step, x, y, counts,
        capacity, width, size, SCALE=samples.scale, SIGNED=samples.signed, BLOCK=block,
    )  # fmt: skip
    return Batch(x, y, counts, samples.packed)


def add_to_totals(loop_state: LoopState, gradients: Gradients, counts: Tensor) -> None:
    """Counts the step, its loss and its hits, in place."""
    totals = (loop_state.loss, loop_state.hits, loop_state.seen, loop_state.work.steps)
    if _has_kernels(loop_state.w):
        rows = len(counts)
        hits = gradients.hits.to(loop_state.w.dtype)
        grid = (_programs(rows, 64),)
        step_kernels.add_step[grid](gradients.loss, hits, counts, *totals, rows, BLOCK=64)
        return
    amounts = (gradients.loss * counts, gradients.hits, counts, torch.ones_like(counts))
    for total, amount in zip(totals, amounts, strict=True):
        total += amount


def update(optimiser: Optimiser, w: Tensor, g: Tensor, state: Rows) -> None:
    """The optimiser's step, in place."""
    if type(optimiser) is Adam and _fits_kernel(w, g, state):
        _update_by_kernel(optimiser, w, g, state)
        return
    w_after, state_after = optimiser.update(w, g, state)
    w.copy_(w_after)
    for name, values in state_after.items():
        state[name].copy_(values)


def _fits_kernel(w: Tensor, g: Tensor, adam_state: Rows) -> bool:
    """Whether the kernel of Adam's step can read these rows."""
    if not _has_kernels(w):
        return False
    return g.stride() == w.stride() and adam_state["m"].stride() == w.stride()


def _update_by_kernel(adam: Adam, w: Tensor, g: Tensor, state: Rows) -> None:
    rows, size = w.shape
    if adam.weight_decay is not None:
        g = g + adam.weight_decay * w
    s1 = state["s1"]
    s2 = state["s2"]
    row_grid = (_programs(rows, 64),)
    step_kernels.adam_counts[row_grid](s1, s2, adam.beta1, adam.beta2, rows, BLOCK=64)
    grid = (_programs(size, 1024), rows)
    step_kernels.adam[grid](
        w, g, state["m"], state["v"], s1, s2, adam.lr, adam.eps, w.stride(0), size, BLOCK=1024
    )


def _programs(count: int, block: int) -> int:
    """How many programs work on so many numbers, a block each."""
    return -(-count // block)


def _has_kernels(x: Tensor) -> bool:
    """Whether there are kernels that work on such numbers."""
    return step_kernels is not None and x.is_cuda and x.dtype in (torch.float32, torch.uint8)
