"""The tensors that captured steps read and write, which stay at the same address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.core.rows import head
from tacit.core.torch_private import copy_each
from tacit.training.batches import PackedBatches
from tacit.training.trainer import LoopState

# room for rounds with more rows or steps than this one, so that graphs need not be captured again
SPARE = 1.25


@dataclass
class Workspace:
    """What graphs refer to: rows on their way through the loop, their batches, and the step."""

    loop_state: LoopState
    index: Tensor  # (steps, K, B), the samples of each step's batches
    counts: Tensor  # (steps, K), how many of them are real
    step: Tensor  # (1,), the number of the next step
    # by the number of rows and of steps
    graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = field(default_factory=dict)
    pool: Any = None  # the memory that graphs share: only one of them runs at a time

    def state_tensors(self) -> list[Tensor]:
        """The tensors that a step changes."""
        return [*_leaves(self.loop_state), self.step]

    def fill(self, loop_state: LoopState, batches: Sequence[PackedBatches]) -> None:
        """Copies rows and their batches into the workspace, and begins at step 0."""
        rows = len(batches)
        steps = len(batches[0])
        width = self.index.shape[2]
        room = head(self.loop_state, rows)
        copy_tensors(_leaves(room), _leaves(loop_state))
        pinned = self.index.is_cuda
        index = torch.zeros(steps, rows, width, dtype=torch.int32, pin_memory=pinned)
        counts = torch.zeros(steps, rows, dtype=torch.int32, pin_memory=pinned)
        for k, row_batches in enumerate(batches):
            row_steps, row_width = row_batches.index.shape
            index[:row_steps, k, :row_width] = row_batches.index
            counts[:row_steps, k] = row_batches.counts
        self.index[:steps, :rows].copy_(index, non_blocking=True)
        self.counts[:steps, :rows].copy_(counts, non_blocking=True)
        self.step.zero_()


class Workspaces:
    """One workspace for each kind of rows: those of a round's work, those of fine-tuning."""

    def __init__(self) -> None:
        self.by_kind: dict[tuple[int, str], Workspace] = {}

    def prepare(self, loop_state: LoopState, batches: Sequence[PackedBatches]) -> Workspace:
        """The workspace of such rows, filled with these; rows with most steps come first."""
        width = max(row_batches.index.shape[1] for row_batches in batches)
        kind = (width, _signature(loop_state))
        steps = len(batches[0])
        workspace = self._find_or_make(kind, loop_state, steps, len(batches))
        workspace.fill(loop_state, batches)
        return workspace

    def _find_or_make(
        self, kind: tuple[int, str], loop_state: LoopState, steps: int, rows: int
    ) -> Workspace:
        """The workspace of this kind, a new one if there is none or if it is too small."""
        workspace = self.by_kind.get(kind)
        if workspace is not None:
            old_steps, old_rows = workspace.counts.shape
            if steps <= old_steps and rows <= old_rows:
                return workspace
            steps = max(int(SPARE * steps), old_steps)
            rows = max(int(SPARE * rows), old_rows)
        workspace = _make_workspace(loop_state, steps, rows, kind[0])
        self.by_kind[kind] = workspace
        return workspace


def _make_workspace(loop_state: LoopState, steps: int, rows: int, width: int) -> Workspace:
    """Room for that many rows and steps; every tensor has memory of its own."""
    device = loop_state.w.device
    index = torch.zeros(steps, rows, width, dtype=torch.int32, device=device)

    def make_room(leaf: Tensor) -> Tensor:
        return leaf.new_zeros(rows, *leaf.shape[1:])

    room = map_tensors(make_room, loop_state)
    counts = index.new_zeros(steps, rows)
    step = torch.zeros(1, dtype=torch.int64, device=device)
    return Workspace(room, index, counts, step)


def copy_tensors(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies tensors of one type together: if types are mixed, torch copies one by one."""
    for dtype in {target.dtype for target in targets}:
        positions = [k for k, target in enumerate(targets) if target.dtype == dtype]
        copy_each([targets[k] for k in positions], [sources[k] for k in positions])


def map_tensors(change: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree of dicts and dataclasses with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {name: map_tensors(change, value) for name, value in tree.items()}
    if is_dataclass(tree):
        changed: Any = object.__new__(type(tree))
        for item in fields(tree):
            value = map_tensors(change, getattr(tree, item.name))
            object.__setattr__(changed, item.name, value)
        return changed
    return tree


def _leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree, always in the same order."""
    leaves: list[Tensor] = []
    map_tensors(leaves.append, tree)
    return leaves


def _signature(loop_state: LoopState) -> str:
    """Equal for rows that the same captured steps can work on."""

    def signature(leaf: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        return tuple(leaf.shape[1:]), leaf.dtype

    return repr(_listed(map_tensors(signature, loop_state)))


def _listed(tree: Any) -> Any:
    """A tree as nested lists, with the names of its entries and its classes."""
    if isinstance(tree, dict):
        return [(name, _listed(value)) for name, value in tree.items()]
    if is_dataclass(tree):
        values = [_listed(getattr(tree, item.name)) for item in fields(tree)]
        return type(tree).__qualname__, values
    return tree
