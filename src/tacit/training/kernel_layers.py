"""Layers of many rows on a GPU, each computed by kernels of our own.

Forward and backward are written out: weights are read from the rows where they lie, and gradients
are written to rows of the same kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

try:
    from tacit.training import kernels
except ImportError:  # no Triton, as on a machine without a GPU
    kernels = None  # type: ignore[assignment]

PROGRAMS = 65_535  # along the second and third side of a grid, by CUDA's rule
CHUNK = 512  # output positions whose weight gradients one program adds up
# Tiles, measured on an H200 (benchmarks/gpu_step.py). They are the same for any number of rows, so
# that no row depends on how many there are.
PATCH_IN_ONE_TILE = {"BM": 64, "BR": 128, "num_warps": 4, "num_stages": 1}
PATCH_IN_SEVERAL_TILES = {"BM": 64, "BR": 32, "num_warps": 4, "num_stages": 3}
WEIGHTS = {"BM": 32, "BR": 128, "num_warps": 4, "num_stages": 2}
INPUTS = {"BM": 128, "BR": 32, "num_warps": 4, "num_stages": 3}
DENSE = {"BB": 32, "BI": 64, "BO": 32, "num_warps": 4}


@dataclass(frozen=True)
class ConvolutionLayer:
    """A convolution with bias, ReLU and pooling; `weight` and `bias` are offsets in a row."""

    shape: tuple[int, int, int]  # of the input: C, H, W
    channels: int
    kernel: tuple[int, int]
    stride: int
    padding: int
    weight: int
    bias: int | None
    relu: bool = False
    pool: int = 1
    last: bool = False  # a fully connected layer follows

    @property
    def inner(self) -> tuple[int, int]:
        """The output's height and width before pooling."""
        _, height, width = self.shape
        kernel_height, kernel_width = self.kernel
        return self._positions(height, kernel_height), self._positions(width, kernel_width)

    @property
    def out(self) -> tuple[int, ...]:
        """The output's shape."""
        height, width = self.inner
        return self.channels, height // self.pool, width // self.pool

    @property
    def widest(self) -> int:
        """How many numbers a sample has before or after the layer, whichever is more."""
        channels, height, width = self.shape
        before = filled(channels) * height * width
        after = filled(self.channels) * math.prod(self.inner)
        return max(before, after)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    def forward(self, w: Tensor, x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """The output, and which position of each pool it came from if that is to be kept."""
        rows = len(w)
        count = x.shape[1]
        _, ph, pw = self.out
        shape = self.out if self.last else (ph, pw, filled(self.channels))
        out = x.new_empty(rows, count, *shape)
        winners_shape = out.shape if keep else (1,)
        winners = torch.empty(winners_shape, dtype=torch.int8, device=x.device)
        packed = self._pack(w, to_inputs=False)
        positions = count * ph * pw
        tile = PATCH_IN_ONE_TILE
        if self._patch > tile["BR"]:
            tile = PATCH_IN_SEVERAL_TILES
        grid = (_programs(positions, tile["BM"]), rows)
        kernels.conv_forward[grid](
            x, packed, w, out, winners, x.stride(0), w.stride(0), self.bias or 0, positions,
            **self._sides, **self._pooled, STRIDE=self.stride, RELU=self.relu,
            BIAS=self.bias is not None, KEEP=keep, BO=_tile_side(self.channels),
            PRECISION=_precision(), **tile,
        )  # fmt: skip
        return out, winners

    def backward(
        self, w: Tensor, x: Tensor, winners: Tensor, d_out: Tensor, g: Tensor, first: bool
    ) -> Tensor | None:
        """Writes the gradient of the parameters to g, and returns that of the inputs.

        The first layer returns None: nobody needs the gradient of the samples.
        """
        rows = len(w)
        count = x.shape[1]
        oh, ow = self.inner
        positions = count * oh * ow
        size = _chunk_size(positions)
        chunks = _programs(positions, size)
        partial = x.new_empty(rows, chunks, self.channels, self._patch + 1)
        grid = (_programs(self._patch, WEIGHTS["BR"]), chunks, rows)
        kernels.conv_weights[grid](
            x, d_out, winners, partial, x.stride(0), positions, **self._sides, **self._pooled,
            OH=oh, OW=ow, STRIDE=self.stride, CHUNK=size, BO=_tile_side(self.channels),
            PRECISION=_precision(), **WEIGHTS,
        )  # fmt: skip
        self._collect(partial, g)
        if first:
            return None
        return self._differentiate_inputs(w, winners, d_out, count)

    def _collect(self, partial: Tensor, g: Tensor) -> None:
        """Adds up the chunks' gradients into g."""
        rows, chunks = partial.shape[:2]
        grid = (_programs(partial[0, 0].numel(), 256), rows)
        kernels.conv_collect[grid](
            partial, g, g.stride(0), self.weight, self.bias or 0, chunks,
            O=self.channels, C=self.shape[0], CP=filled(self.shape[0]), TAPS=self.taps,
            BIAS=self.bias is not None, BLOCK=256,
        )  # fmt: skip

    def _differentiate_inputs(
        self, w: Tensor, winners: Tensor, d_out: Tensor, count: int
    ) -> Tensor:
        rows = len(w)
        channels, height, width = self.shape
        oh, ow = self.inner
        dense = d_out.new_empty(rows, count, oh, ow, filled(self.channels))
        numbers = dense.numel()
        kernels.unpool[(_programs(numbers, 1024),)](
            d_out, winners, dense, numbers, **self._pooled, OP=filled(self.channels),
            OH=oh, OW=ow, BLOCK=1024,
        )  # fmt: skip
        d_x = d_out.new_empty(rows, count, height, width, filled(channels))
        packed = self._pack(w, to_inputs=True)
        positions = count * height * width
        grid = (_programs(positions, INPUTS["BM"]), rows)
        kernels.conv_inputs[grid](
            dense, packed, d_x, positions, **self._sides, OH=oh, OW=ow,
            BO=_tile_side(channels), PRECISION=_precision(), **INPUTS,
        )  # fmt: skip
        return d_x

    def _pack(self, w: Tensor, *, to_inputs: bool) -> Tensor:
        """The weights as the kernels read them, filled up with zeros.

        # (K, taps x channels, channels)
        """
        c = self.shape[0]
        o = self.channels
        if to_inputs:
            inner = filled(o)
            outer = _tile_side(c)
        else:
            inner = filled(c)
            outer = _tile_side(o)
        packed = w.new_empty(len(w), self.taps * inner, outer)
        grid = (_programs(packed[0].numel(), 512), len(w))
        kernels.pack_weights[grid](
            w, packed, w.stride(0), self.weight, O=o, C=c, TAPS=self.taps,
            INNER=inner, OUTER=outer, INPUTS=to_inputs, BLOCK=512,
        )  # fmt: skip
        return packed

    def _positions(self, side: int, kernel: int) -> int:
        """How many positions the kernel takes along a side."""
        return (side + 2 * self.padding - kernel) // self.stride + 1

    @property
    def _patch(self) -> int:
        """How many numbers of the input one output is made from, with the added channels."""
        return self.taps * filled(self.shape[0])

    @property
    def _sides(self) -> dict[str, int]:
        c, h, w = self.shape
        kh, kw = self.kernel
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


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer with bias and ReLU; `weight` and `bias` are offsets in a row."""

    inputs: int
    outputs: int
    weight: int
    bias: int | None
    relu: bool = False
    after_relu: bool = False  # whether its inputs come straight from a dense layer's ReLU

    @property
    def out(self) -> tuple[int, ...]:
        """The output's shape."""
        return (self.outputs,)

    @property
    def widest(self) -> int:
        """How many numbers a sample has before or after the layer, whichever is more."""
        return max(self.inputs, self.outputs)

    def forward(self, w: Tensor, x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """The output, twice: it is also what the way back needs."""
        rows = len(w)
        count = x.shape[1]
        out = x.new_empty(rows, count, self.outputs)
        grid = (_programs(self.outputs, DENSE["BO"]), _programs(count, DENSE["BB"]), rows)
        kernels.dense_forward[grid](
            x, w, out, x.stride(0), w.stride(0), self.weight, self.bias or 0, count,
            **self._sides, RELU=self.relu, BIAS=self.bias is not None, **DENSE,
        )  # fmt: skip
        return out, out

    def backward(
        self, w: Tensor, x: Tensor, out: Tensor, d_out: Tensor, g: Tensor, first: bool
    ) -> Tensor | None:
        """Writes the gradient of the parameters to g, and returns that of the inputs.

        The first layer returns None: nobody needs the gradient of the samples.
        """
        rows = len(w)
        count = x.shape[1]
        grid = (_programs(self.inputs, DENSE["BI"]), _programs(self.outputs, DENSE["BO"]), rows)
        kernels.dense_weights[grid](
            x, d_out, g, x.stride(0), g.stride(0), self.weight, self.bias or 0, count,
            **self._sides, BIAS=self.bias is not None, **DENSE,
        )  # fmt: skip
        if first:
            return None
        d_x = x.new_empty(rows, count, self.inputs)
        grid = (_programs(self.inputs, DENSE["BI"]), _programs(count, DENSE["BB"]), rows)
        kernels.dense_inputs[grid](
            d_out, w, x, d_x, w.stride(0), self.weight, count,
            **self._sides, MASK=self.after_relu, **DENSE,
        )  # fmt: skip
        return d_x

    @property
    def _sides(self) -> dict[str, Any]:
        return {"I": self.inputs, "O": self.outputs, "PRECISION": _precision()}


Layer = ConvolutionLayer | DenseLayer


def cross_entropy(out: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the outputs, the mean loss, and how many samples were right.

    # (K, B, O), (K, B), (K, 1) -> (K, B, O), (K, 1), (K, 1)
    """
    rows, width, classes = out.shape
    d_out = torch.empty_like(out)
    loss = out.new_empty(rows, 1)
    right = out.new_empty(rows, 1)
    kernels.cross_entropy[(rows,)](
        out, y.contiguous(), counts, d_out, loss, right, width,
        O=classes, BB=min(32, _tile_side(width)), BO=_tile_side(classes), num_warps=1,
    )  # fmt: skip
    return d_out, loss, right


def has_triton() -> bool:
    """Whether there is what compiles the kernels."""
    return kernels is not None


def filled(channels: int) -> int:
    """The number of channels with those that are added, so that four are read at a time."""
    return max(4, 1 << (channels - 1).bit_length())


def _chunk_size(positions: int) -> int:
    """Output positions of a chunk: more than usual where a grid could not hold the chunks."""
    size = CHUNK
    while _programs(positions, size) > PROGRAMS:
        size *= 2
    return size


def _programs(count: int, size: int) -> int:
    """How many programs share so many numbers, each working on `size`."""
    return -(-count // size)


def _tile_side(count: int) -> int:
    """The power of two that a tile of the matrix units needs for so many numbers."""
    return max(16, 1 << (count - 1).bit_length())


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
