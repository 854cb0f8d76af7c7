"""Networks of convolutions and fully connected layers, for many rows on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.training.batches import Batch
from tacit.training.gradients import Gradients, zero_gradients
from tacit.training.kernel_layers import ConvolutionLayer, Layer, cross_entropy, filled
from tacit.training.losses import USUAL, Loss, hits

MOST = 2**31 - 1  # numbers of a row that a kernel can count


@dataclass(frozen=True)
class KernelNetwork:
    """Layers in order. Rows w (K, P), samples x (K, B, ...), outputs (K, B, O)."""

    layers: tuple[Layer, ...]

    @property
    def packs(self) -> bool:
        """Whether its samples are pictures that have to be packed."""
        return isinstance(self.layers[0], ConvolutionLayer)

    def pack(self, x: Tensor) -> Tensor:
        """Samples as the first layer reads them: pictures (..., C, H, W) become (..., H, W, CP)."""
        if not self.packs:
            return x.contiguous()
        channels = x.shape[-3]
        added = filled(channels) - channels
        return pad(x.movedim(-3, -1), (0, added)).contiguous()

    @property
    def widest(self) -> int:
        """Numbers that a sample has in its largest layer."""
        return max(layer.widest for layer in self.layers)

    def outputs(self, w: Tensor, x: Tensor) -> Tensor:
        """What the rows' models answer to packed samples."""
        if x.shape[1] * self.widest > MOST:
            chunks = x.split(max(1, MOST // self.widest), 1)
            return torch.cat([self.outputs(w, chunk) for chunk in chunks], 1)
        for layer in self.layers:
            x, _ = layer.forward(w, _inputs(layer, x), keep=False)
        return x

    def answers(self, w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        """The same as `evaluation.RowOutputs`; such a network has no buffers."""
        return self.outputs(w, x)

    def forward(self, w: Tensor, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The outputs, and what the way back needs: each layer's inputs and what it has kept."""
        tape = []
        for layer in self.layers:
            x = _inputs(layer, x)
            out, extra = layer.forward(w, x, keep=True)
            tape.append((x, extra))
            x = out
        return x, tape

    def backward(self, w: Tensor, tape: Sequence[tuple[Tensor, Tensor]], d_out: Tensor) -> Tensor:
        """The gradient of every row, from that of its outputs. # (K, P)"""
        g = torch.empty_like(w)
        d: Tensor | None = d_out
        for k in reversed(range(len(self.layers))):
            assert d is not None
            d = self.layers[k].backward(w, *tape[k], d, g, first=k == 0)
        return g


def _inputs(layer: Layer, x: Tensor) -> Tensor:
    """A layer's inputs from the outputs of the one before it."""
    return x if isinstance(layer, ConvolutionLayer) else x.flatten(2)


class KernelGradients:
    """The gradient function of a network; a `loss` takes the place of the usual one."""

    def __init__(self, network: KernelNetwork, loss: Loss | None = None) -> None:
        self.network = network
        self.loss = loss

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
        x = batch.x if batch.packed else self.network.pack(batch.x)
        count = x.shape[1]
        if count * self.network.widest > MOST:
            raise StudyError(
                f"{count:,} samples are too many at once for this model on a GPU; use a batch_size"
            )
        out, tape = self.network.forward(w, x)
        counts = batch.column(w.device)
        if self.loss is None and batch.y.dtype == torch.int64:
            d_out, loss, right = cross_entropy(out, batch.y, counts)
        else:
            d_out, loss, right = _differentiate(self.loss or USUAL, out, batch.y, counts)
        return Gradients(self.network.backward(w, tape, d_out), loss, right, buffers)


def _differentiate(
    loss: Loss, out: Tensor, y: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `cross_entropy`, for any loss: a few operations on the outputs, by autograd."""
    mask = (torch.arange(y.shape[1], device=y.device) < counts).to(out.dtype)  # (K, B)
    with torch.enable_grad():
        leaf = out.detach().requires_grad_()
        sample_losses = loss(leaf.flatten(0, 1), y.flatten(0, 1)).view(mask.shape)
        mean = (sample_losses * mask).sum(1, keepdim=True) / counts.clamp(min=1)
        (d_out,) = torch.autograd.grad(mean.sum(), leaf)
    sample_hits = hits(leaf.detach().flatten(0, 1), y.flatten(0, 1), loss).view(mask.shape)
    right = (sample_hits * mask).sum(1, keepdim=True)
    return d_out, mean.detach(), right
