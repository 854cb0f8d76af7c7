"""Reads a module as a network for kernels of our own, where it is one.

A module that is an `nn.Sequential` of `Conv2d`, `ReLU`, `MaxPool2d(2)`, `Flatten` and `Linear` is
read layer by layer. If a module does anything else, `read` returns None, and the general gradient
(`VmappedGradients`) is used.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import nn

from tacit.core.torch_private import has_hooks
from tacit.core.vectors import Layout
from tacit.training.kernel_layers import ConvolutionLayer, DenseLayer, Layer, has_triton
from tacit.training.kernel_network import KernelNetwork

# channels of a convolution; with more of them, the vendor's kernels fill the chip by themselves
WIDEST = 64


def read(module: nn.Module, shape: Sequence[int]) -> KernelNetwork | None:
    """The module as a network for samples of this shape, or None if it does anything else."""
    layout = Layout.of(module)
    if not has_triton() or layout.buffers or not _is_plain(module):
        return None
    layers = _LayerReader(module, layout, shape).layers()
    if not layers or not isinstance(layers[-1], DenseLayer):
        return None
    return KernelNetwork(_mark_last_convolutions(layers))


class _LayerReader:
    """Goes through the modules of a sequence, and notes the shape that samples have there."""

    def __init__(self, module: nn.Module, layout: Layout, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.offsets = _offsets(layout)
        leaves = _leaves(module)
        self.remaining = deque(leaf for leaf in leaves if not isinstance(leaf[1], nn.Identity))

    def layers(self) -> list[Layer] | None:
        """All layers, or None if there is one that the kernels do not compute."""
        layers: list[Layer] = []
        while self.remaining:
            name, module = self.remaining.popleft()
            if _is_full_flatten(module):
                self.shape = (math.prod(self.shape),)
                continue
            before = layers[-1] if layers else None
            layer = self._layer(name, module, before)
            if layer is None:
                return None
            layers.append(layer)
            self.shape = layer.out
        return layers

    def _layer(self, name: str, module: nn.Module, before: Layer | None) -> Layer | None:
        weight = self.offsets.get(f"{name}.weight")
        bias = self.offsets.get(f"{name}.bias")
        relu = self._take_relu()
        if weight is None:
            return None
        if type(module) is nn.Linear and self.shape == (module.in_features,):
            after_relu = isinstance(before, DenseLayer) and before.relu
            return DenseLayer(
                module.in_features, module.out_features, weight, bias, relu, after_relu
            )
        if type(module) is nn.Conv2d and len(self.shape) == 3:
            if not _is_supported(module, first=before is None):
                return None
            return self._convolution(module, weight, bias, relu)
        return None

    def _convolution(
        self, module: nn.Conv2d, weight: int, bias: int | None, relu: bool
    ) -> ConvolutionLayer:
        channels, height, width = self.shape
        return ConvolutionLayer(
            shape=(channels, height, width),
            channels=module.out_channels,
            kernel=(module.kernel_size[0], module.kernel_size[1]),
            stride=module.stride[0],
            padding=int(module.padding[0]),
            weight=weight,
            bias=bias,
            relu=relu,
            pool=self._take_pool(),
        )

    def _take_relu(self) -> bool:
        """Whether a ReLU follows, which then becomes part of the layer."""
        if not self.remaining or type(self.remaining[0][1]) is not nn.ReLU:
            return False
        self.remaining.popleft()
        return True

    def _take_pool(self) -> int:
        """The side of the pools that follow, which then become part of the layer; 1 without any."""
        if not self.remaining or not _pools_by_two(self.remaining[0][1]):
            return 1
        self.remaining.popleft()
        return 2


def _offsets(layout: Layout) -> dict[str, int]:
    """Where each parameter begins in a row, by its name."""
    offsets = {}
    offset = 0
    for name, size in zip(layout.names, layout.sizes, strict=True):
        offsets[name] = offset
        offset += size
    return offsets


def _mark_last_convolutions(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, where convolutions say whether a dense layer follows them."""
    marked: list[Layer] = []
    for k, layer in enumerate(layers):
        if isinstance(layer, ConvolutionLayer):
            layer = replace(layer, last=isinstance(layers[k + 1], DenseLayer))
        marked.append(layer)
    return tuple(marked)


def _leaves(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules of nested sequences, in order, by their path."""
    if type(module) is not nn.Sequential:
        yield path, module
        return
    # a module that comes twice is listed twice
    for key, child in module.named_modules(remove_duplicate=False):
        if key and "." not in key:
            child_path = f"{path}.{key}" if path else key
            yield from _leaves(child, child_path)


def _is_plain(module: nn.Module) -> bool:
    """Whether only the layers' own forward is at work.

    That is, there are no hooks, and no parameter is frozen, shared or reparametrised.
    """
    modules = list(module.modules())
    parameters = []
    for child in modules:
        named = child.named_parameters(recurse=False, remove_duplicate=False)
        parameters += [parameter for _, parameter in named]
    is_shared = len(parameters) > len(set(parameters))
    is_frozen = not all(parameter.requires_grad for parameter in parameters)
    return not (is_shared or is_frozen or any(map(has_hooks, modules)))


def _is_full_flatten(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def _is_supported(module: nn.Conv2d, *, first: bool) -> bool:
    """Whether the kernels compute such a convolution; a later one must have a stride of one."""
    if module.stride[0] != module.stride[1] or not (first or module.stride[0] == 1):
        return False
    if isinstance(module.padding, str) or module.padding[0] != module.padding[1]:
        return False
    if module.padding_mode != "zeros" or module.groups != 1 or module.dilation != (1, 1):
        return False
    return max(module.in_channels, module.out_channels) <= WIDEST


def _pools_by_two(module: nn.Module) -> bool:
    if type(module) is not nn.MaxPool2d or module.ceil_mode or module.return_indices:
        return False
    settings = (module.kernel_size, module.stride, module.padding, module.dilation)
    return settings == (2, 2, 0, 1)
