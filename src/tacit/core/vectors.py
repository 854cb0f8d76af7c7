"""A model as one flat row of numbers, and back.

The row holds the trainable parameters, in the module's own order. Buffers (BatchNorm's statistics)
are kept beside it, as contiguous copies: under `vmap`, a slice of a larger row silently loses its
in-place updates.

>>> module = torch.nn.Linear(2, 1)
>>> layout = Layout.of(module)
>>> layout.size, layout.flatten(module).shape
(3, torch.Size([3]))
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.core.torch_private import copy_each


@dataclass(frozen=True)
class Layout:
    """Where each trainable parameter lies in the row, and which buffers the module has."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    buffers: tuple[str, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        kind = type(module).__name__
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise StudyError(f"{kind} has no trainable parameter, so there is nothing to learn")
        dtypes = [p.dtype for p in trainable.values()]
        for name, dtype in zip(trainable, dtypes, strict=True):
            if dtype != dtypes[0]:
                raise StudyError(f"the parameters of {kind} must share one type; {name} differs")
        shapes = tuple(p.shape for p in trainable.values())
        buffers = tuple(name for name, buffer in module.named_buffers() if buffer.numel())
        return cls(tuple(trainable), shapes, buffers)

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """P, the length of a row."""
        return sum(self.sizes)

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's parameters as a new (P,) row."""
        parameters = [p.detach().reshape(-1) for p in self.parameters(module)]
        return torch.cat(parameters)

    def unflatten(self, row: Tensor) -> Rows:
        """The parameters by name, as views of the (P,) row."""
        slices = row.split_with_sizes(self.sizes)
        parameters: Rows = {}
        for name, values, shape in zip(self.names, slices, self.shapes, strict=True):
            parameters[name] = values.view(shape)
        return parameters

    def copy_buffers(self, module: nn.Module) -> Rows:
        """The module's buffers by name, as contiguous copies."""
        buffers = dict(module.named_buffers())
        copies: Rows = {}
        for name in self.buffers:
            copies[name] = buffers[name].detach().clone(memory_format=torch.contiguous_format)
        return copies

    def parameters(self, module: nn.Module) -> list[Tensor]:
        """The module's trainable parameters, in the row's order."""
        return [module.get_parameter(name) for name in self.names]

    @torch.no_grad()
    def load(self, module: nn.Module, row: Tensor, buffers: Rows | None = None) -> None:
        """Copies a row, and buffers, into the module."""
        if row.shape != (self.size,):
            shape = tuple(row.shape)
            raise ValueError(f"expected a row of {self.size} parameters, got shape {shape}")
        values = self.unflatten(row)
        copy_each(self.parameters(module), list(values.values()))
        targets = dict(module.named_buffers())
        for name, value in (buffers or {}).items():
            targets[name].copy_(value)


def pack(buffers: Rows) -> Rows:
    """Buffers of K rows as message entries.

    Those of floats become `buffers` (K, B), to be averaged; the others `counters` (K, C), to be
    copied.
    """
    floats: list[Tensor] = []
    counters: list[Tensor] = []
    for value in buffers.values():
        matrix = _as_matrix(value).flatten(1)
        if matrix.is_floating_point():
            floats.append(matrix)
        else:
            counters.append(matrix.long())
    entries: Rows = {}
    if floats:
        entries["buffers"] = torch.cat(floats, 1)
    if counters:
        entries["counters"] = torch.cat(counters, 1)
    return entries


def unpack(entries: Rows, like: Rows) -> Rows:
    """Undoes `pack` for one row: entries (B,) and (C,) become buffers shaped as `like`'s."""
    start = {"buffers": 0, "counters": 0}
    buffers: Rows = {}
    for name, value in like.items():
        entry = "buffers" if value.is_floating_point() else "counters"
        end = start[entry] + value.numel()
        flat = entries[entry][start[entry] : end]
        start[entry] = end
        buffers[name] = flat.reshape(value.shape).to(value.dtype)
    return buffers


def _as_matrix(value: Tensor) -> Tensor:
    return value[:, None] if value.dim() == 1 else value
