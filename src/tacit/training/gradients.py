"""Gradients per row, in two forms of the same function.

One is a loop over rows (CPU), the other vmap over rows (GPU, for models that `kernel_reader.py`
cannot read).

A gradient function takes (w, buffers, batch, seeds, step) for K rows and returns what the optimiser
needs. The trainer does not care which function it is given: private training injects its own, and
draws its noise by `draws.py` from the seed of each row, (K,), and the number of the step, (), both
whole numbers on w's device. Full gradients are no step of the training; they are numbered -1, -2
and so on. A row's batch may be empty: then its loss and its gradient are zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tacit.core.rows import Rows, join, pick
from tacit.core.torch_private import is_batch_norm, run_backward
from tacit.core.vectors import Layout
from tacit.training.batches import Batch
from tacit.training.channels import store_channels_last
from tacit.training.losses import USUAL, Loss, hits, losses


class Gradients(NamedTuple):
    """What one step gives, a row per client."""

    g: Tensor  # (K, P), of the mean loss over the batch
    loss: Tensor  # (K, 1), that mean
    hits: Tensor  # (K, 1), how many samples were classified rightly, or their squared errors
    buffers: Rows


GradientFunction = Callable[[Tensor, Rows, Batch, Tensor, Tensor], Gradients]
# "captured": by vmap or by kernels of our own, with steps as CUDA graphs
GradientForm = Literal["loop", "vmap", "captured"]


def row_gradients(
    module: nn.Module, form: Literal["loop", "vmap"] = "loop", loss: Loss | None = None
) -> GradientFunction:
    """The gradient function of a model in this form; a `loss` takes the place of the usual one."""
    if form == "loop":
        return LoopedGradients(module, loss)
    return VmappedGradients(module, loss)


def mixes_samples(module: nn.Module) -> bool:
    """Whether samples of a batch influence each other, as under BatchNorm.

    Padding would change the result of such a model.
    """
    if Layout.of(module).buffers:
        return True
    return any(map(is_batch_norm, module.modules()))


def zero_gradients(w: Tensor, buffers: Rows) -> Gradients:
    """What empty batches give: no loss, and a gradient of zeros."""
    zero = w.new_zeros(len(w), 1)
    return Gradients(torch.zeros_like(w), zero, zero, buffers)


class LoopedGradients:
    """Plain autograd through the module, one row after another; nothing is padded.

    The parameters are views of one row w and their gradients are views of another, g, so that one
    copy loads a model and one copy takes its gradient. The weights of convolutions are stored apart
    (see `channels.py`).
    """

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        self.loss = loss
        self.module = module = copy.deepcopy(module).train()
        self.layout = Layout.of(module)
        self.w = self.layout.flatten(module)  # (P,)
        self.g = torch.zeros_like(self.w)  # (P,)
        self.unit = self.w.new_ones(())  # what backward starts with
        self.w_views = list(self.layout.unflatten(self.w).values())
        self.g_views = list(self.layout.unflatten(self.g).values())
        self.parameters = self.layout.parameters(module)
        for k, parameter in enumerate(self.parameters):
            parameter.data = self.w_views[k]
            parameter.grad = self.g_views[k]
        stored_apart = {id(weight) for weight in store_channels_last(module)}
        self.apart = [k for k, weight in enumerate(self.parameters) if id(weight) in stored_apart]
        self.buffers = {name: module.get_buffer(name) for name in self.layout.buffers}

    def __call__(
        self,
        w: Tensor,
        buffers: Rows,
        batch: Batch,
        seeds: Tensor | None = None,
        step: Tensor | None = None,
    ) -> Gradients:
        rows = []
        for k in range(len(w)):
            row_buffers = pick(buffers, k) if buffers else buffers
            rows.append(self._row(w[k], row_buffers, batch, k))
        if len(rows) == 1:
            return rows[0]
        return _join(rows)

    def _row(self, w: Tensor, buffers: Rows, batch: Batch, k: int) -> Gradients:
        if batch.counts[k] == 0:
            return zero_gradients(w[None], pick(buffers, None))
        x, y = batch.row(k)
        if len(batch.y) > 1:
            # Copied, as if the row were alone: products depend on where a matrix begins in memory.
            x = x.clone()
            y = y.clone()
        self._load(w, buffers)
        output = self.module(x)
        loss = self._mean_loss(output, y)
        run_backward(loss, self.unit)
        buffers_after = {}
        for name, value in self.buffers.items():
            buffers_after[name] = value.detach().clone()[None]
        return Gradients(
            g=self._gradient(),
            loss=loss.detach().view(1, 1),
            hits=hits(output, y, self.loss or USUAL).sum().view(1, 1),
            buffers=buffers_after,
        )

    def _mean_loss(self, output: Tensor, y: Tensor) -> Tensor:
        if self.loss is None:
            return losses(output, y, "mean")
        return self.loss(output, y).mean()

    def _load(self, w: Tensor, buffers: Rows) -> None:
        self.w.copy_(w)
        self.g.zero_()
        for k in self.apart:
            parameter = self.parameters[k]
            parameter.data.copy_(self.w_views[k])
            parameter.grad = None  # backward makes one with channels last; `_gradient` copies it
        for name, value in buffers.items():
            self.buffers[name].copy_(value)

    def _gradient(self) -> Tensor:
        """A copy of the gradient that backward has added up. # (1, P)

        Where a parameter's gradient is no view of g, as that of a convolution's weight, it is
        copied there first.
        """
        for parameter, view in zip(self.parameters, self.g_views, strict=True):
            if parameter.grad is not view:
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                parameter.grad = view
        return self.g.clone()[None]


class VmappedGradients:
    """All rows in one batched program; padded samples are masked out of the loss."""

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        self.loss = loss or USUAL
        self.module = copy.deepcopy(module).train()
        self.layout = Layout.of(module)
        self.mixes_samples = mixes_samples(module)
        self.batched = vmap(grad_and_value(self._loss, has_aux=True), randomness="different")

    def __call__(
        self,
        w: Tensor,
        buffers: Rows,
        batch: Batch,
        seeds: Tensor | None = None,
        step: Tensor | None = None,
    ) -> Gradients:
        if not batch.y.shape[1]:
            return zero_gradients(w, buffers)
        counts = batch.counts
        if self.mixes_samples and not isinstance(counts, Tensor) and len(set(counts)) > 1:
            return self._by_size(w, buffers, batch)
        mask = _real_samples(batch, w)
        copies = {name: value.clone() for name, value in buffers.items()}
        g, (loss, extra) = self.batched(w, copies, batch.x, batch.y, mask)
        right, buffers_after = extra
        return Gradients(g.detach(), loss.detach()[:, None], right[:, None], buffers_after)

    def _loss(
        self, w: Tensor, buffers: Rows, x: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Rows]]:
        """One row's mean loss, and beside it the hits and the buffers, which forward changes."""
        parameters = self.layout.unflatten(w)
        output = functional_call(self.module, (parameters, buffers), (x,))
        loss = (self.loss(output, y) * mask).sum() / mask.sum().clamp(min=1)
        right = (hits(output, y, self.loss) * mask).sum()
        return loss, (right, buffers)

    def _by_size(self, w: Tensor, buffers: Rows, batch: Batch) -> Gradients:
        """Rows with equally large batches at a time, since batch statistics would see padding."""
        sizes = torch.tensor(batch.counts)
        gradients = []
        row_groups = []
        for size in sizes.unique().tolist():
            rows = (sizes == size).nonzero()[:, 0].to(w.device)
            counts = (size,) * len(rows)
            unpadded = Batch(batch.x[rows, :size], batch.y[rows, :size], counts)
            gradients.append(self(w[rows], pick(buffers, rows), unpadded))
            row_groups.append(rows)
        order = torch.cat(row_groups).argsort()
        joined = _join(gradients)
        return Gradients(
            g=pick(joined.g, order),
            loss=pick(joined.loss, order),
            hits=pick(joined.hits, order),
            buffers=pick(joined.buffers, order),
        )


def _real_samples(batch: Batch, w: Tensor) -> Tensor:
    """1 for the real samples of each row's batch, 0 for padding, of w's type. # (K, B)"""
    positions = torch.arange(batch.y.shape[1], device=w.device)
    return (positions < batch.column(w.device)).to(w.dtype)


def _join(gradients: Sequence[Gradients]) -> Gradients:
    """The gradients of several groups of rows as those of all of them, in order."""
    return Gradients(
        g=join([rows.g for rows in gradients]),
        loss=join([rows.loss for rows in gradients]),
        hits=join([rows.hits for rows in gradients]),
        buffers=join([rows.buffers for rows in gradients]),
    )
