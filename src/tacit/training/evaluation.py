"""How good models are, sample by sample, so that any grouping of the samples costs one pass."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from tacit.core.rows import Rows
from tacit.core.vectors import Layout
from tacit.training.batches import Samples
from tacit.training.channels import turn
from tacit.training.losses import hits, losses

AT_ONCE = 32_768  # samples of all rows together; more would not be faster

RowOutputs = Callable[[Tensor, Rows, Tensor], Tensor]  # (K, P), buffers, (K, n, ...) -> (K, n, outputs)


@torch.no_grad()
def evaluate(module: nn.Module, x: Tensor, y: Tensor, chunk: int = 1024, beside: int = 1) -> tuple[Tensor, Tensor]:
    """Each sample's loss and whether it was classified rightly, or its squared error. # (n,), (n,)

    `beside` chunks at a time, each in a thread.
    """
    turn(module.eval())
    free: SimpleQueue[nn.Module] = SimpleQueue()
    for own in [module, *(copy.deepcopy(module) for _ in range(beside - 1))]:  # a model may note things on itself
        free.put(own)

    def figures(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        own = free.get()
        try:
            with torch.no_grad():  # every thread has a mode of its own
                out = own(part[0])
                return losses(out, part[1]), hits(out, part[1])
        finally:
            free.put(own)

    parts = list(zip(x.split(chunk), y.split(chunk), strict=True))
    if beside > 1 and len(parts) > 1:
        with ThreadPoolExecutor(beside) as pool:
            pairs = list(pool.map(figures, parts))
    else:
        pairs = [figures(part) for part in parts]
    empty = x.new_zeros(0)
    return torch.cat([empty, *(pair[0] for pair in pairs)]), torch.cat([empty.bool(), *(pair[1] for pair in pairs)])


def row_outputs(module: nn.Module) -> RowOutputs:
    """What many models of one kind answer, in one batched program."""
    module, layout = module.eval(), Layout.of(module)

    def answer(w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        found: Tensor = functional_call(module, (layout.unflatten(w), buffers), (x,))
        return found

    batched: Any = vmap(answer)
    return batched  # type: ignore[no-any-return]


@torch.no_grad()
def evaluate_rows(
    outputs: RowOutputs, w: Tensor, buffers: Rows, samples: Samples, index: Tensor
) -> tuple[Tensor, Tensor]:
    """As `evaluate`, for K models at once, on the same samples, index (n,), or each on its own, (K, n).

    # (K, n), (K, n)
    """
    rows = len(w)
    size, pairs = max(1, AT_ONCE // rows), []
    for part in index.split(size, -1):
        x, y = samples.take(part), samples.y[part]
        if part.dim() == 1:
            x, y = x.expand(rows, *x.shape), y.expand(rows, *y.shape)
        out, y = outputs(w, buffers, x).flatten(0, 1), y.flatten(0, 1)
        pairs.append((losses(out, y).view(rows, -1), hits(out, y).view(rows, -1)))
    return torch.cat([pair[0] for pair in pairs], 1), torch.cat([pair[1] for pair in pairs], 1)
