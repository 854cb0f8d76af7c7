"""A model as one flat row of numbers, and back.

The row holds the trainable parameters, in the module's own order. Buffers (BatchNorm's statistics) are kept beside it,
as contiguous copies: under `vmap`, a slice of a larger row silently loses its in-place updates.

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
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trainable:
            raise StudyError(
                f"{type(module).__name__} has no trainable parameter, so there is nothing to learn"
            )
        if odd := [name for name, p in trainable if p.dtype != trainable[0][1].dtype]:
            raise StudyError(
                f"the parameters of {type(module).__name__} must share one type; {odd[0]} differs"
            )
        names, shapes = tuple(name for name, _ in trainable), tuple(p.shape for _, p in trainable)
        return cls(names, shapes, tuple(name for name, b in module.named_buffers() if b.numel()))

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """P, the length of a row."""
        return sum(self.sizes)

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's parameters as a new (P,) row."""
        return torch.cat([module.get_parameter(name).detach().reshape(-1) for name in self.names])

    def unflatten(self, row: Tensor) -> Rows:
        """The parameters by name, as views of the (P,) row."""
        parts = zip(self.names, row.split_with_sizes(self.sizes), self.shapes, strict=True)
        return {name: part.view(shape) for name, part, shape in parts}

    def copy_buffers(self, module: nn.Module) -> Rows:
        """The module's buffers by name, as contiguous copies."""
        found = dict(module.named_buffers())
        return {
            name: found[name].detach().clone(memory_format=torch.contiguous_format)
            for name in self.buffers
        }

    def parameters(self, module: nn.Module) -> list[Tensor]:
        """The module's trainable parameters, in the row's order."""
        return [module.get_parameter(name) for name in self.names]

    @torch.no_grad()
    def load(self, module: nn.Module, row: Tensor, buffers: Rows | None = None) -> None:
        """Copies a row, and buffers, into the module."""
        if row.shape != (self.size,):
            raise ValueError(
                f"expected a row of {self.size} parameters, got shape {tuple(row.shape)}"
            )
        copy_each(self.parameters(module), list(self.unflatten(row).values()))
        found = dict(module.named_buffers())
        for name, value in (buffers or {}).items():
            found[name].copy_(value)


def to_row(module: nn.Module) -> Tensor:
    """The module's trainable parameters as one (P,) row."""
    return Layout.of(module).flatten(module)


def from_row(row: Tensor, module: nn.Module) -> nn.Module:
    """Copies the row into the module, and returns it."""
    Layout.of(module).load(module, row)
    return module


def pack(buffers: Rows) -> Rows:
    """Buffers of K rows as message entries: `buffers` (K, B), to be averaged, and `counters` (K, C), to be copied."""
    matrices = [_as_matrix(value).flatten(1) for value in buffers.values()]
    floats = [value for value in matrices if value.is_floating_point()]
    whole = [value.long() for value in matrices if not value.is_floating_point()]
    entries = {"buffers": floats, "counters": whole}
    return {name: torch.cat(parts, 1) for name, parts in entries.items() if parts}


def unpack(entries: Rows, like: Rows) -> Rows:
    """Undoes `pack` for one row: entries (B,) and (C,) become buffers shaped as `like`'s."""
    at = {"buffers": 0, "counters": 0}
    found = {}
    for name, value in like.items():
        entry = "buffers" if value.is_floating_point() else "counters"
        part = entries[entry][at[entry] : at[entry] + value.numel()]
        at[entry] += value.numel()
        found[name] = part.reshape(value.shape).to(value.dtype)
    return found


def _as_matrix(value: Tensor) -> Tensor:
    return value[:, None] if value.dim() == 1 else value
