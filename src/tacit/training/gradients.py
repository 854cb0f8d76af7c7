"""Gradients per row, in two forms of the same function: a loop over rows (CPU) and vmap over rows (GPU, for models
that `fused.py` does not know).

A gradient function takes (w, buffers, batch, seeds, step) for K rows and returns what the optimiser needs. The trainer
does not care which one it is given: private training injects its own, and draws its noise by `draws.py` from the seed
of each row, (K,), and the number of the step, (), both whole numbers on w's device. Full gradients are no step of the
training: theirs are numbered -1, -2 and so on. A row's batch may be empty: its loss and its gradient are zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tacit.core.rows import Rows, join, pick
from tacit.core.torch_private import is_batch_norm, run_backward
from tacit.core.vectors import Layout
from tacit.training.batches import Batch
from tacit.training.channels import turn
from tacit.training.losses import Loss, hits, losses


class Gradients(NamedTuple):
    """What one step gives, a row per client."""

    g: Tensor  # (K, P), of the mean loss over the batch
    loss: Tensor  # (K, 1), that mean
    hits: Tensor  # (K, 1), how many of the batch were classified rightly, or their squared errors, summed
    buffers: Rows


GradientFunction = Callable[[Tensor, Rows, Batch, Tensor, Tensor], Gradients]
Form = Literal[
    "loop", "vmap", "captured"
]  # the last is vmap, or kernels of our own, with steps as CUDA graphs


def row_gradients(
    module: nn.Module, form: Literal["loop", "vmap"] = "loop", loss: Loss | None = None
) -> GradientFunction:
    """The gradient function of a model, in the form that suits the device, for a loss of one's own if given."""
    return (LoopedGradients if form == "loop" else VmappedGradients)(module, loss)


def has_statistics(module: nn.Module) -> bool:
    """Whether samples of a batch look at each other, as under BatchNorm: padding would be seen."""
    return bool(Layout.of(module).buffers) or any(map(is_batch_norm, module.modules()))


def nothing(w: Tensor, buffers: Rows) -> Gradients:
    """What empty batches give: no loss, and a gradient of zeros."""
    zero = w.new_zeros(len(w), 1)
    return Gradients(torch.zeros_like(w), zero, zero, buffers)


class LoopedGradients:
    """Plain autograd through the module, one row after another; nothing is padded.

    The parameters are views of one row and their gradients of another, so that one copy loads a model and one takes its
    gradient. The kernels of convolutions lie apart (see `channels.py`).
    """

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        self.loss = loss
        self.module = module = copy.deepcopy(module).train()
        self.layout = Layout.of(module)
        self.row = self.layout.flatten(module)  # (P,)
        self.slope = torch.zeros_like(self.row)  # (P,)
        self.one = self.row.new_ones(())
        self.parts, self.slopes = (
            list(self.layout.unflatten(row).values()) for row in (self.row, self.slope)
        )
        self.parameters = self.layout.parameters(module)
        for parameter, part, slope in zip(self.parameters, self.parts, self.slopes, strict=True):
            parameter.data, parameter.grad = part, slope
        turned = {id(kernel) for kernel in turn(module)}
        self.kernels = [k for k, parameter in enumerate(self.parameters) if id(parameter) in turned]
        self.buffers = {name: module.get_buffer(name) for name in self.layout.buffers}

    def __call__(
        self,
        w: Tensor,
        buffers: Rows,
        batch: Batch,
        seeds: Tensor | None = None,
        step: Tensor | None = None,
    ) -> Gradients:
        rows = [
            self._row(w[k], pick(buffers, k) if buffers else buffers, batch, k)
            for k in range(len(w))
        ]
        if len(rows) == 1:
            return rows[0]
        return Gradients(*(join([row[i] for row in rows]) for i in range(4)))

    def _row(self, w: Tensor, buffers: Rows, batch: Batch, k: int) -> Gradients:
        if batch.counts[k] == 0:
            return nothing(w[None], pick(buffers, None))
        x, y = batch.row(k)
        if (
            len(batch.y) > 1
        ):  # in memory of its own, as if it were alone: products depend on where a matrix begins
            x, y = x.clone(), y.clone()
        self._load(w, buffers)
        output = self.module(x)
        loss = losses(output, y, "mean") if self.loss is None else self.loss(output, y).mean()
        run_backward(loss, self.one)
        seen = {name: value.detach().clone()[None] for name, value in self.buffers.items()}
        return Gradients(
            self._gradient(), loss.detach().view(1, 1), hits(output, y).sum().view(1, 1), seen
        )

    def _load(self, w: Tensor, buffers: Rows) -> None:
        self.row.copy_(w)
        self.slope.zero_()
        for k in self.kernels:
            self.parameters[k].data.copy_(self.parts[k])
            self.parameters[
                k
            ].grad = (
                None  # its gradient comes channels last, too, and is put in its place afterwards
            )
        for name, value in buffers.items():
            self.buffers[name].copy_(value)

    def _gradient(self) -> Tensor:
        """A copy of what backward has added up, also where a gradient is no view of ours: a kernel's, for one."""
        for parameter, slope in zip(self.parameters, self.slopes, strict=True):
            if parameter.grad is not slope:
                if parameter.grad is not None:
                    slope.copy_(parameter.grad)
                parameter.grad = slope
        return self.slope.clone()[None]


class VmappedGradients:
    """All rows in one batched program; padded samples are masked out of the loss."""

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        self.loss = loss or losses
        self.module, self.layout = copy.deepcopy(module).train(), Layout.of(module)
        self.statistics = has_statistics(module)
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
            return nothing(w, buffers)
        if self.statistics and not isinstance(batch.counts, Tensor) and len(set(batch.counts)) > 1:
            return self._by_size(w, buffers, batch)
        mask = (torch.arange(batch.y.shape[1], device=w.device) < batch.column(w.device)).to(
            w.dtype
        )  # (K, B)
        copies = {name: value.clone() for name, value in buffers.items()}
        g, (loss, (right, seen)) = self.batched(w, copies, batch.x, batch.y, mask)
        return Gradients(g.detach(), loss.detach()[:, None], right[:, None], seen)

    def _loss(
        self, w: Tensor, buffers: Rows, x: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Rows]]:
        output = functional_call(self.module, (self.layout.unflatten(w), buffers), (x,))
        loss = (self.loss(output, y) * mask).sum() / mask.sum().clamp(min=1)
        return loss, ((hits(output, y) * mask).sum(), buffers)

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
