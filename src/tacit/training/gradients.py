"""Gradients per row, in two forms of the same function: a loop over rows (CPU) and vmap over rows (GPU).

A gradient function takes (w, buffers, batch) for K rows and returns what the optimiser needs. The trainer does not
care which one it is given: private training injects its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Batch
from tacit.training.losses import hits, losses


class Gradients(NamedTuple):
    """What one step gives, a row per client."""

    g: Tensor  # (K, P), of the mean loss over the batch
    loss: Tensor  # (K, 1), that mean
    hits: Tensor  # (K, 1), how many of the batch were classified rightly, or their squared errors, summed
    buffers: Rows


GradientFunction = Callable[[Tensor, Rows, Batch], Gradients]
Form = Literal["loop", "vmap", "captured"]  # the last is vmap, or kernels of our own, with steps as CUDA graphs


def row_gradients(module: nn.Module, form: Literal["loop", "vmap"] = "loop") -> GradientFunction:
    """The gradient function of a model, in the form that suits the device."""
    return (LoopedGradients if form == "loop" else VmappedGradients)(module)


class LoopedGradients:
    """Plain autograd through the module, one row after another; nothing is padded."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module = copy.deepcopy(module).train()
        self.layout = Layout.of(module)
        self.parameters = self.layout.parameters(module)
        self.row = self.layout.flatten(module)  # (P,), which the parameters share: one copy loads them all
        for parameter, part in zip(self.parameters, self.layout.unflatten(self.row).values(), strict=True):
            parameter.data = part
        self.buffers = {name: module.get_buffer(name) for name in self.layout.buffers}

    def __call__(self, w: Tensor, buffers: Rows, batch: Batch) -> Gradients:
        rows = [self._row(w[k], pick(buffers, k), batch, k) for k in range(len(w))]
        if len(rows) == 1:
            return rows[0]
        return Gradients(*(join([row[i] for row in rows]) for i in range(4)))

    def _row(self, w: Tensor, buffers: Rows, batch: Batch, k: int) -> Gradients:
        self.row.copy_(w)
        for name, value in buffers.items():
            self.buffers[name].copy_(value)
        x, y = batch.row(k)
        output = self.module(x)
        loss = losses(output, y, "mean")
        parts = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        g = torch.cat([part.reshape(-1) for part in parts])[None]
        seen = {name: value.detach().clone()[None] for name, value in self.buffers.items()}
        return Gradients(g, loss.detach().view(1, 1), hits(output, y).sum().view(1, 1), seen)


class VmappedGradients:
    """All rows in one batched program; padded samples are masked out of the loss."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.layout = copy.deepcopy(module).train(), Layout.of(module)
        self.batched = vmap(grad_and_value(self._loss, has_aux=True), randomness="different")

    def __call__(self, w: Tensor, buffers: Rows, batch: Batch) -> Gradients:
        if buffers and not isinstance(batch.counts, Tensor) and len(set(batch.counts)) > 1:
            return self._by_size(w, buffers, batch)
        mask = (torch.arange(batch.y.shape[1], device=w.device) < batch.column(w.device)).to(w.dtype)  # (K, B)
        copies = {name: value.clone() for name, value in buffers.items()}
        g, (loss, (right, seen)) = self.batched(w, copies, batch.x, batch.y, mask)
        return Gradients(g.detach(), loss.detach()[:, None], right[:, None], seen)

    def _loss(self, w: Tensor, buffers: Rows, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, Rows]]:
        output = functional_call(self.module, (self.layout.unflatten(w), buffers), (x,))
        return (losses(output, y) * mask).sum() / mask.sum(), ((hits(output, y) * mask).sum(), buffers)

    def _by_size(self, w: Tensor, buffers: Rows, batch: Batch) -> Gradients:
        """Batch statistics see padding, so rows with batches of different size are taken apart."""
        sizes = torch.tensor(batch.counts)
        parts, places = [], []
        for size in sizes.unique().tolist():
            rows = (sizes == size).nonzero()[:, 0].to(w.device)
            cut = Batch(batch.x[rows, :size], batch.y[rows, :size], (size,) * len(rows))
            parts.append(self(w[rows], pick(buffers, rows), cut))
            places.append(rows)
        back = torch.cat(places).argsort()
        return Gradients(*(pick(join([part[i] for part in parts]), back) for i in range(4)))
