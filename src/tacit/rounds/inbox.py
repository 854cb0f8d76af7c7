"""Where a round's messages are gathered: one matrix per entry, filled row by row.

A large cohort's messages would otherwise be held twice, as rows and as the matrix that is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.rows import Rows


class Inbox:
    """Takes at most so many messages, one row each; None where they come in blocks, and lie in a matrix already."""

    def __init__(self, most: int | None) -> None:
        self.most, self.count, self.matrices = most, 0, Rows()

    def take(self, message: Rows) -> Rows:
        """The message, moved into the matrices."""
        if self.most is None:
            return message
        for name, row in message.items():
            if name not in self.matrices:
                self.matrices[name] = row.new_empty((self.most, *row.shape[1:]))
        rows = slice(self.count, self.count + 1)
        self.count += 1
        return {name: self.matrices[name][rows].copy_(row) for name, row in message.items()}


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """One matrix of these rows: a view where they lie one after another already, else a copy."""
    first, at = rows[0], rows[0].data_ptr()
    for row in rows:
        apart = (
            row.data_ptr() != at
            or row.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
        )
        if (
            apart
            or not row.is_contiguous()
            or row.shape[1:] != first.shape[1:]
            or row.dtype != first.dtype
        ):
            return torch.cat(list(rows))
        at += row.numel() * row.element_size()
    return first.as_strided((sum(map(len, rows)), *first.shape[1:]), first.stride())
