"""How good models are, sample by sample, so that any grouping of the samples costs one pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Samples
from tacit.training.channels import store_channels_last
from tacit.training.losses import USUAL, Loss, hits
from tacit.training.threads import map_in_threads

AT_ONCE = 32_768  # samples of all rows together; more would not be faster

RowAndBuffers = tuple[Tensor, Rows]  # a row (P,) and its buffers
LossesAndHits = tuple[Tensor, Tensor]  # each sample's loss and hit, in the host's memory
# (K, P), buffers, (K, n, ...) -> (K, n, outputs)
RowOutputs = Callable[[Tensor, Rows, Tensor], Tensor]
Chunk = tuple[Tensor, Tensor]  # features and targets of some samples


@torch.no_grad()
def evaluate(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    chunk: int = 1024,
    side_by_side: int = 1,
    *,
    loss: Loss = USUAL,
) -> tuple[Tensor, Tensor]:
    """Each sample's loss, and whether it was classified rightly or its squared error. # (n,), (n,)

    `side_by_side` chunks are evaluated at a time, each in a thread.
    """
    store_channels_last(module.eval())
    chunks = list(zip(x.split(chunk), y.split(chunk), strict=True))
    if side_by_side > 1 and len(chunks) > 1:
        figures = _evaluate_in_threads(module, chunks, side_by_side, loss)
    else:
        figures = [_evaluate_chunk(module, samples, loss) for samples in chunks]
    empty = x.new_zeros(0)
    chunk_losses = [empty]  # of no sample, so that there is something to join
    chunk_hits = [empty.bool()]
    for sample_losses, sample_hits in figures:
        chunk_losses.append(sample_losses)
        chunk_hits.append(sample_hits)
    return torch.cat(chunk_losses), torch.cat(chunk_hits)


def _evaluate_chunk(module: nn.Module, samples: Chunk, loss: Loss) -> tuple[Tensor, Tensor]:
    x, y = samples
    output = module(x)
    return loss(output, y), hits(output, y, loss)


def _evaluate_in_threads(
    module: nn.Module, chunks: Sequence[Chunk], threads: int, loss: Loss
) -> list[tuple[Tensor, Tensor]]:
    """Chunks side by side, each with a copy of the model, which may store things on itself."""
    copies = [copy.deepcopy(module) for _ in range(threads - 1)]

    def evaluate_chunk(free_module: nn.Module, samples: Chunk) -> tuple[Tensor, Tensor]:
        with torch.no_grad():  # every thread has a mode of its own
            return _evaluate_chunk(free_module, samples, loss)

    return list(map_in_threads([module, *copies], evaluate_chunk, chunks))


def row_outputs(module: nn.Module) -> RowOutputs:
    """What many models of one kind answer, in one batched program."""
    module = module.eval()
    layout = Layout.of(module)

    def answer(w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        output: Tensor = functional_call(module, (layout.unflatten(w), buffers), (x,))
        return output

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
    loss: Loss = USUAL,
) -> tuple[Tensor, Tensor]:
    """As `evaluate`, for K models at once. # (K, n), (K, n)

    An index of shape (n,) names the samples of all models, one of shape (K, n) those of each.
    """
    rows = len(w)
    size = max(1, AT_ONCE // rows)
    chunk_losses = []
    chunk_hits = []
    for chunk in index.split(size, -1):
        x = samples.take(chunk)
        y = samples.y[chunk]
        if chunk.dim() == 1:
            x = x.expand(rows, *x.shape)
            y = y.expand(rows, *y.shape)
        output = outputs(w, buffers, x).flatten(0, 1)
        y = y.flatten(0, 1)
        chunk_losses.append(loss(output, y).view(rows, -1))
        chunk_hits.append(hits(output, y, loss).view(rows, -1))
    return torch.cat(chunk_losses, 1), torch.cat(chunk_hits, 1)


def evaluate_in_turn(
    module: nn.Module,
    models: Sequence[RowAndBuffers],
    samples: Samples,
    indices: Sequence[Tensor] | None = None,
    *,
    loss: Loss = USUAL,
    side_by_side: int = 1,
) -> list[LossesAndHits]:
    """One model after another, each loaded into `module`.

    Model k is evaluated on the samples that `indices[k]` names, or without `indices` on all.
    """
    layout = Layout.of(module)
    figures = []
    for k, (row, buffers) in enumerate(models):
        layout.load(module, row, buffers)
        x = samples.x
        y = samples.y
        if indices is not None:
            x = samples.features(indices[k])
            y = samples.y[indices[k]]
        sample_losses, sample_hits = evaluate(module, x, y, side_by_side=side_by_side, loss=loss)
        figures.append((sample_losses.cpu(), sample_hits.cpu()))
    return figures


def evaluate_together(
    outputs: RowOutputs,
    models: Sequence[RowAndBuffers],
    samples: Samples,
    indices: Sequence[Tensor] | None = None,
    *,
    loss: Loss = USUAL,
) -> list[LossesAndHits]:
    """As `evaluate_in_turn`, all models at once."""
    w = torch.stack([row for row, _ in models])
    buffers = join([pick(values, None) for _, values in models])
    if indices is None:
        index = torch.arange(len(samples.y), device=samples.x.device)
        sizes = [len(samples.y)] * len(models)
    else:
        index = pad_sequence(list(indices), batch_first=True).to(samples.x.device)
        sizes = [len(model_index) for model_index in indices]
    if not index.shape[-1]:
        empty = w.new_zeros(0).cpu()
        return [(empty, empty)] * len(models)
    row_losses, row_hits = evaluate_rows(outputs, w, buffers, samples, index, loss=loss)
    host_losses = row_losses.cpu()
    host_hits = row_hits.cpu()
    return [(host_losses[k, :size], host_hits[k, :size]) for k, size in enumerate(sizes)]
