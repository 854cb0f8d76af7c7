"""How good models are, sample by sample, so that any grouping of the samples costs one pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Samples
from tacit.training.channels import turn
from tacit.training.losses import Loss, hits, losses

AT_ONCE = 32_768  # samples of all rows together; more would not be faster

Model = tuple[Tensor, Rows]  # a row (P,) and its buffers
Figures = tuple[Tensor, Tensor]  # each sample's loss and hit, in the host's memory
RowOutputs = Callable[
    [Tensor, Rows, Tensor], Tensor
]  # (K, P), buffers, (K, n, ...) -> (K, n, outputs)


@torch.no_grad()
def evaluate(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    chunk: int = 1024,
    beside: int = 1,
    *,
    loss: Loss = losses,
) -> tuple[Tensor, Tensor]:
    """Each sample's loss and whether it was classified rightly, or its squared error. # (n,), (n,)

    `beside` chunks at a time, each in a thread.
    """
    turn(module.eval())
    free: SimpleQueue[nn.Module] = SimpleQueue()
    for own in [
        module,
        *(copy.deepcopy(module) for _ in range(beside - 1)),
    ]:  # a model may note things on itself
        free.put(own)

    def figures(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        own = free.get()
        try:
            with torch.no_grad():  # every thread has a mode of its own
                out = own(part[0])
                return loss(out, part[1]), hits(out, part[1])
        finally:
            free.put(own)

    parts = list(zip(x.split(chunk), y.split(chunk), strict=True))
    if beside > 1 and len(parts) > 1:
        with ThreadPoolExecutor(beside) as pool:
            pairs = list(pool.map(figures, parts))
    else:
        pairs = [figures(part) for part in parts]
    empty = x.new_zeros(0)
    return torch.cat([empty, *(pair[0] for pair in pairs)]), torch.cat(
        [empty.bool(), *(pair[1] for pair in pairs)]
    )


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
    outputs: RowOutputs,
    w: Tensor,
    buffers: Rows,
    samples: Samples,
    index: Tensor,
    *,
    loss: Loss = losses,
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
        pairs.append((loss(out, y).view(rows, -1), hits(out, y).view(rows, -1)))
    return torch.cat([pair[0] for pair in pairs], 1), torch.cat([pair[1] for pair in pairs], 1)


def evaluate_in_turn(
    module: nn.Module,
    models: Sequence[Model],
    samples: Samples,
    places: Sequence[Tensor] | None = None,
    *,
    loss: Loss = losses,
    beside: int = 1,
) -> list[Figures]:
    """Each model on its own samples, those at its `places`, or each on all of them; they are loaded into `module`."""
    layout, figures = Layout.of(module), []
    for k, (row, buffers) in enumerate(models):
        layout.load(module, row, buffers)
        x, y = (
            (samples.x, samples.y)
            if places is None
            else (samples.features(places[k]), samples.y[places[k]])
        )
        each_loss, each_hit = evaluate(module, x, y, beside=beside, loss=loss)
        figures.append((each_loss.cpu(), each_hit.cpu()))
    return figures


def evaluate_together(
    outputs: RowOutputs,
    models: Sequence[Model],
    samples: Samples,
    places: Sequence[Tensor] | None = None,
    *,
    loss: Loss = losses,
) -> list[Figures]:
    """As `evaluate_in_turn`, all models at once."""
    w = torch.stack([row for row, _ in models])
    buffers = join([pick(values, None) for _, values in models])
    if places is None:
        index = torch.arange(len(samples.y), device=samples.x.device)
        sizes = [len(samples.y)] * len(models)
    else:
        index = pad_sequence(list(places), batch_first=True).to(samples.x.device)
        sizes = [len(chosen) for chosen in places]
    if not index.shape[-1]:
        return [(w.new_zeros(0).cpu(), w.new_zeros(0).cpu())] * len(models)
    losses_, hits_ = evaluate_rows(outputs, w, buffers, samples, index, loss=loss)
    host_losses, host_hits = losses_.cpu(), hits_.cpu()
    return [(host_losses[k, :size], host_hits[k, :size]) for k, size in enumerate(sizes)]
