"""Networks of convolutions and fully connected layers, for many rows on a GPU: one kernel per layer.

A module that is an `nn.Sequential` of `Conv2d`, `ReLU`, `MaxPool2d(2)`, `Flatten` and `Linear` is read layer by layer;
whatever else a module does, `read` returns None and the general gradient (`VmappedGradients`) is used. Forward and
backward are written out: weights are read from the rows where they lie, and gradients written to rows of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.core.torch_private import has_hooks
from tacit.core.vectors import Layout
from tacit.training.batches import Batch
from tacit.training.gradients import Gradients, nothing
from tacit.training.losses import Loss, hits, losses

WIDEST = 64  # channels of a convolution; with more of them, the vendor's kernels fill the chip by themselves
# Tiles, measured on an H200 (benchmarks/gpu_step.py). They do not depend on the number of rows, so that no row does.
MOST = 2**31 - 1  # numbers of a row that a kernel can count
PROGRAMS = 65_535  # along the second and third side of a grid, by CUDA's rule
CHUNK = 512  # output positions whose weight gradients one program adds up
WHOLE = {
    "BM": 64,
    "BR": 128,
    "num_warps": 4,
    "num_stages": 1,
}  # forward, where a patch fits into one tile
PARTS = {"BM": 64, "BR": 32, "num_warps": 4, "num_stages": 3}
WEIGHTS = {"BM": 32, "BR": 128, "num_warps": 4, "num_stages": 2}
INPUTS = {"BM": 128, "BR": 32, "num_warps": 4, "num_stages": 3}
DENSE = {"BB": 32, "BI": 64, "BO": 32, "num_warps": 4}

try:
    from tacit.training import kernels
except ImportError:  # no Triton, as on a machine without a GPU
    kernels = None  # type: ignore[assignment]


@dataclass(frozen=True)
class ConvolutionLayer:
    """ConvolutionLayer with bias, ReLU and pooling; `weight` and `bias` are offsets in a row."""

    shape: tuple[int, int, int]  # of the input: C, H, W
    channels: int
    kernel: tuple[int, int]
    stride: int
    padding: int
    weight: int
    bias: int | None
    relu: bool = False
    pool: int = 1
    last: bool = False  # what follows is fully connected

    @property
    def inner(self) -> tuple[int, int]:
        """The output's height and width before pooling."""
        _, height, width = self.shape
        sides = zip((height, width), self.kernel, strict=True)
        high, wide = ((side + 2 * self.padding - k) // self.stride + 1 for side, k in sides)
        return high, wide

    @property
    def out(self) -> tuple[int, ...]:
        return (self.channels, *(side // self.pool for side in self.inner))

    @property
    def widest(self) -> int:
        """Numbers that a sample has in it, before or after."""
        return max(
            filled(self.shape[0]) * math.prod(self.shape[1:]),
            filled(self.channels) * math.prod(self.inner),
        )

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def _sides(self) -> dict[str, int]:
        (c, h, w), (kh, kw) = self.shape, self.kernel
        return {
            "H": h,
            "W": w,
            "CP": filled(c),
            "OP": filled(self.channels),
            "KH": kh,
            "KW": kw,
            "PAD": self.padding,
        }

    @property
    def _pooled(self) -> dict[str, int]:
        _, ph, pw = self.out
        return {"O": self.channels, "PH": ph, "PW": pw, "POOL": self.pool, "LAST": self.last}

    def forward(self, w: Tensor, x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """The output, and which place of each pool it came from, if that is to be kept."""
        rows, count, (_, ph, pw) = len(w), x.shape[1], self.out
        shape = self.out if self.last else (ph, pw, filled(self.channels))
        out = x.new_empty(rows, count, *shape)
        which = torch.empty(out.shape if keep else (1,), dtype=torch.int8, device=x.device)
        packed, m = self._pack(w, to_inputs=False), count * ph * pw
        tile = WHOLE if self.taps * filled(self.shape[0]) <= WHOLE["BR"] else PARTS
        kernels.conv_forward[(_blocks(m, tile["BM"]), rows)](
            *(x, packed, w, out, which, x.stride(0), w.stride(0), self.bias or 0, m), **self._sides, **self._pooled,
            STRIDE=self.stride, RELU=self.relu, BIAS=self.bias is not None, KEEP=keep,
            BO=_power(self.channels), PRECISION=_precision(), **tile,
        )  # fmt: skip
        return out, which

    def backward(
        self, w: Tensor, x: Tensor, which: Tensor, d_out: Tensor, g: Tensor, first: bool
    ) -> Tensor | None:
        """Writes the parameters' gradient to g; the inputs' is returned unless this is the first layer."""
        rows, count, (oh, ow) = len(w), x.shape[1], self.inner
        m, length = count * oh * ow, self.taps * filled(self.shape[0])
        size = CHUNK
        while _blocks(m, size) > PROGRAMS:
            size *= 2
        chunks = _blocks(m, size)
        partial = x.new_empty(rows, chunks, self.channels, length + 1)
        kernels.conv_weights[(_blocks(length, WEIGHTS["BR"]), chunks, rows)](
            *(x, d_out, which, partial, x.stride(0), m), **self._sides, **self._pooled, OH=oh, OW=ow,
            STRIDE=self.stride, CHUNK=size, BO=_power(self.channels), PRECISION=_precision(), **WEIGHTS,
        )  # fmt: skip
        kernels.conv_collect[(_blocks(partial[0, 0].numel(), 256), rows)](
            *(partial, g, g.stride(0), self.weight, self.bias or 0, chunks), O=self.channels, C=self.shape[0],
            CP=filled(self.shape[0]), TAPS=self.taps, BIAS=self.bias is not None, BLOCK=256,
        )  # fmt: skip
        return None if first else self._inputs(w, which, d_out, count)

    def _inputs(self, w: Tensor, which: Tensor, d_out: Tensor, count: int) -> Tensor:
        rows, (c, h, wide), (oh, ow) = len(w), self.shape, self.inner
        dense = d_out.new_empty(rows, count, oh, ow, filled(self.channels))
        n, m = dense.numel(), count * h * wide
        kernels.unpool[(_blocks(n, 1024),)](
            d_out,
            which,
            dense,
            n,
            **self._pooled,
            OP=filled(self.channels),
            OH=oh,
            OW=ow,
            BLOCK=1024,
        )
        d_x = d_out.new_empty(rows, count, h, wide, filled(c))
        kernels.conv_inputs[(_blocks(m, INPUTS["BM"]), rows)](
            *(dense, self._pack(w, to_inputs=True), d_x, m), **self._sides, OH=oh, OW=ow,
            BO=_power(c), PRECISION=_precision(), **INPUTS,
        )  # fmt: skip
        return d_x

    def _pack(self, w: Tensor, *, to_inputs: bool) -> Tensor:
        """The weights as the kernels read them: (taps x channels, channels), filled up with zeros."""
        c, o = self.shape[0], self.channels
        inner, outer = (filled(o), _power(c)) if to_inputs else (filled(c), _power(o))
        packed = w.new_empty(len(w), self.taps * inner, outer)
        kernels.pack_weights[(_blocks(packed[0].numel(), 512), len(w))](
            *(w, packed, w.stride(0), self.weight), O=o, C=c, TAPS=self.taps, INNER=inner, OUTER=outer,
            INPUTS=to_inputs, BLOCK=512,
        )  # fmt: skip
        return packed


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer with bias and ReLU."""

    inputs: int
    outputs: int
    weight: int
    bias: int | None
    relu: bool = False
    after_relu: bool = False  # whether its inputs come straight from a dense layer's ReLU

    @property
    def out(self) -> tuple[int, ...]:
        return (self.outputs,)

    @property
    def widest(self) -> int:
        return max(self.inputs, self.outputs)

    @property
    def _dims(self) -> dict[str, Any]:
        return {"I": self.inputs, "O": self.outputs, "PRECISION": _precision()}

    def forward(self, w: Tensor, x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        rows, count = len(w), x.shape[1]
        out = x.new_empty(rows, count, self.outputs)
        kernels.dense_forward[(_blocks(self.outputs, DENSE["BO"]), _blocks(count, DENSE["BB"]), rows)](
            *(x, w, out, x.stride(0), w.stride(0), self.weight, self.bias or 0, count), **self._dims,
            RELU=self.relu, BIAS=self.bias is not None, **DENSE,
        )  # fmt: skip
        return out, out

    def backward(
        self, w: Tensor, x: Tensor, out: Tensor, d_out: Tensor, g: Tensor, first: bool
    ) -> Tensor | None:
        rows, count = len(w), x.shape[1]
        kernels.dense_weights[(_blocks(self.inputs, DENSE["BI"]), _blocks(self.outputs, DENSE["BO"]), rows)](
            *(x, d_out, g, x.stride(0), g.stride(0), self.weight, self.bias or 0, count), **self._dims,
            BIAS=self.bias is not None, **DENSE,
        )  # fmt: skip
        if first:
            return None
        d_x = x.new_empty(rows, count, self.inputs)
        kernels.dense_inputs[(_blocks(self.inputs, DENSE["BI"]), _blocks(count, DENSE["BB"]), rows)](
            *(d_out, w, x, d_x, w.stride(0), self.weight, count), **self._dims,
            MASK=self.after_relu, **DENSE,
        )  # fmt: skip
        return d_x


Layer = ConvolutionLayer | DenseLayer


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
        return pad(x.movedim(-3, -1), (0, filled(x.shape[-3]) - x.shape[-3])).contiguous()

    @property
    def widest(self) -> int:
        """Numbers that a sample has in its largest layer."""
        return max(layer.widest for layer in self.layers)

    def outputs(self, w: Tensor, x: Tensor) -> Tensor:
        """What the rows' models answer to packed samples."""
        if x.shape[1] * self.widest > MOST:
            return torch.cat(
                [self.outputs(w, part) for part in x.split(max(1, MOST // self.widest), 1)], 1
            )
        for layer in self.layers:
            x, _ = layer.forward(
                w, x if isinstance(layer, ConvolutionLayer) else x.flatten(2), keep=False
            )
        return x

    def answers(self, w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        """The same as `evaluation.RowOutputs`; such a network has no buffers."""
        return self.outputs(w, x)

    def forward(self, w: Tensor, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The outputs, and what the way back needs: each layer's inputs and what it kept."""
        kept = []
        for layer in self.layers:
            x = x if isinstance(layer, ConvolutionLayer) else x.flatten(2)
            out, which = layer.forward(w, x, keep=True)
            kept.append((x, which))
            x = out
        return x, kept

    def backward(self, w: Tensor, kept: Sequence[tuple[Tensor, Tensor]], d_out: Tensor) -> Tensor:
        """The gradient of every row, from that of its outputs. # (K, P)"""
        g = torch.empty_like(w)
        d: Tensor | None = d_out
        for place in reversed(range(len(self.layers))):
            assert d is not None
            d = self.layers[place].backward(w, *kept[place], d, g, first=place == 0)
        return g


class KernelGradients:
    """The gradient function of a network that `read` could read, for a loss of one's own if given."""

    def __init__(self, network: KernelNetwork, loss: Loss | None = None) -> None:
        self.network, self.loss = network, loss

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
        x = batch.x if batch.packed else self.network.pack(batch.x)
        if x.shape[1] * self.network.widest > MOST:
            raise StudyError(
                f"{x.shape[1]:,} samples are too many at once for this model on a GPU; use a batch_size"
            )
        out, kept = self.network.forward(w, x)
        counts = batch.column(w.device)
        if self.loss is None and batch.y.dtype == torch.int64:
            d_out, loss, right = _cross_entropy(out, batch.y, counts)
        else:
            d_out, loss, right = _any_loss(self.loss or losses, out, batch.y, counts)
        return Gradients(self.network.backward(w, kept, d_out), loss, right, buffers)


def _cross_entropy(out: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, width, classes = out.shape
    d_out, loss, right = torch.empty_like(out), out.new_empty(rows, 1), out.new_empty(rows, 1)
    block = min(32, _power(width))
    kernels.cross_entropy[(rows,)](
        out,
        y.contiguous(),
        counts,
        d_out,
        loss,
        right,
        width,
        O=classes,
        BB=block,
        BO=_power(classes),
        num_warps=1,
    )
    return d_out, loss, right


def _any_loss(
    loss_of: Loss, out: Tensor, y: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Squared errors, soft targets, losses of one's own: a few operations on the outputs, by autograd."""
    mask = (torch.arange(y.shape[1], device=y.device) < counts).to(out.dtype)  # (K, B)
    with torch.enable_grad():
        leaf = out.detach().requires_grad_()
        each = loss_of(leaf.flatten(0, 1), y.flatten(0, 1)).view(mask.shape)
        loss = (each * mask).sum(1, keepdim=True) / counts.clamp(min=1)
        (d_out,) = torch.autograd.grad(loss.sum(), leaf)
    right = (hits(leaf.detach().flatten(0, 1), y.flatten(0, 1)).view(mask.shape) * mask).sum(
        1, keepdim=True
    )
    return d_out, loss.detach(), right


def read(module: nn.Module, shape: Sequence[int]) -> KernelNetwork | None:
    """The module as a network for samples of this shape, or None if it does anything else."""
    layout = Layout.of(module)
    if kernels is None or layout.buffers or not _is_plain(module):
        return None
    names, sizes = layout.names, layout.sizes
    at = {name: sum(sizes[:place]) for place, name in enumerate(names)}
    layers: list[Layer] = []
    now = tuple(shape)
    parts = [part for part in _leaves(module) if not isinstance(part[1], nn.Identity)]
    while parts:
        name, part = parts.pop(0)
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            now = (math.prod(now),)
            continue
        offsets = at.get(f"{name}.weight"), at.get(f"{name}.bias")
        relu = bool(parts) and type(parts[0][1]) is nn.ReLU
        after = (
            type(part) is nn.Linear
            and bool(layers)
            and isinstance(layers[-1], DenseLayer)
            and layers[-1].relu
        )
        if relu:
            parts.pop(0)
        if type(part) is nn.Linear and now == (part.in_features,) and offsets[0] is not None:
            layers.append(
                DenseLayer(part.in_features, part.out_features, offsets[0], offsets[1], relu, after)
            )
        elif (
            type(part) is nn.Conv2d
            and len(now) == 3
            and offsets[0] is not None
            and _plain(part, first=not layers)
        ):
            pool = 2 if parts and _pools_by_two(parts[0][1]) else 1
            parts = parts[pool - 1 :]
            padding = int(part.padding[0])
            kernel = (part.kernel_size[0], part.kernel_size[1])
            sizes_ = (
                part.out_channels,
                kernel,
                part.stride[0],
                padding,
                offsets[0],
                offsets[1],
                relu,
                pool,
            )
            layers.append(ConvolutionLayer((now[0], now[1], now[2]), *sizes_))
        else:
            return None
        now = layers[-1].out
    layers = [
        replace(one, last=isinstance(after, DenseLayer))
        if isinstance(one, ConvolutionLayer)
        else one
        for one, after in zip(layers, [*layers[1:], None], strict=True)
    ]
    return KernelNetwork(tuple(layers)) if layers and isinstance(layers[-1], DenseLayer) else None


def _leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The parts of nested sequences, in order, by their path."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for key, part in module.named_modules(
        remove_duplicate=False
    ):  # a part that comes twice is there twice
        if key and "." not in key:
            yield from _leaves(part, f"{name}.{key}" if name else key)


def _is_plain(module: nn.Module) -> bool:
    """Whether nothing but the layers' own forward is at work: no hooks, nothing frozen, shared or reparametrised."""
    parts = list(module.modules())
    named = [part.named_parameters(recurse=False, remove_duplicate=False) for part in parts]
    parameters = [parameter for pairs in named for _, parameter in pairs]
    shared = len(parameters) > len(set(parameters))
    return (
        not shared and all(p.requires_grad for p in parameters) and not any(map(has_hooks, parts))
    )


def _plain(part: nn.Conv2d, *, first: bool) -> bool:
    square = part.stride[0] == part.stride[1] and (first or part.stride[0] == 1)
    padded = (
        not isinstance(part.padding, str)
        and part.padding[0] == part.padding[1]
        and part.padding_mode == "zeros"
    )
    simple = part.groups == 1 and part.dilation == (1, 1)
    return square and padded and simple and max(part.in_channels, part.out_channels) <= WIDEST


def _pools_by_two(part: nn.Module) -> bool:
    if type(part) is not nn.MaxPool2d or part.ceil_mode or part.return_indices:
        return False
    return (part.kernel_size, part.stride, part.padding, part.dilation) == (2, 2, 0, 1)


def filled(channels: int) -> int:
    """Channels with those that are added to read four at a time."""
    return max(4, 1 << (channels - 1).bit_length())


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


def _power(count: int) -> int:
    """The power of two that a tile of the matrix units needs."""
    return max(16, 1 << (count - 1).bit_length())


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
