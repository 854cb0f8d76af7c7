"""Where a round's messages are gathered: one matrix per entry, filled row by row.

A large cohort's messages would otherwise be held twice, as rows and as a matrix of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.rows import Rows


class Inbox:
    """Takes at most so many messages, one row each.

    None: messages come in blocks, which lie in a matrix already.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.count = 0
        self.matrices: Rows = {}

    def take(self, message: Rows) -> Rows:
        """The message, moved into the matrices."""
        if self.most is None:
            return message
        rows = slice(self.count, self.count + 1)
        self.count += 1
        moved = {}
        for name, row in message.items():
            if name not in self.matrices:
                shape = (self.most, *row.shape[1:])
                self.matrices[name] = row.new_empty(shape)
            moved[name] = self.matrices[name][rows].copy_(row)
        return moved


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """One matrix of these rows: a view where they lie one after another already, else a copy."""
    first = rows[0]
    storage = first.untyped_storage().data_ptr()
    address = first.data_ptr()
    for row in rows:
        is_next = row.data_ptr() == address and row.untyped_storage().data_ptr() == storage
        is_alike = row.shape[1:] == first.shape[1:] and row.dtype == first.dtype
        if not (is_next and is_alike and row.is_contiguous()):
            return torch.cat(list(rows))
        address += row.numel() * row.element_size()
    height = sum(map(len, rows))
    shape = (height, *first.shape[1:])
    return first.as_strided(shape, first.stride())
