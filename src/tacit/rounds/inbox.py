"""Where a round's messages are gathered: one matrix per entry, filled row by row.

A large cohort's messages would otherwise be held twice, as rows and as the matrix that is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tacit.core.rows import Rows
from tacit.rounds.client import Reply


class Inbox:
    """Takes at most so many replies, one row each; None where they come in blocks, and lie in a matrix already."""

    def __init__(self, most: int | None) -> None:
        self.most, self.replies, self.matrices = most, list[Reply](), Rows()

    def take(self, reply: Reply) -> None:
        """Adds a reply; its message moves into the matrices."""
        if self.most is None:
            self.replies.append(reply)
            return
        for name, row in reply.message.items():
            if name not in self.matrices:
                self.matrices[name] = row.new_empty((self.most, *row.shape[1:]))
        place = len(self.replies)
        rows = {name: self.matrices[name][place : place + 1].copy_(row) for name, row in reply.message.items()}
        self.replies.append(replace(reply, message=rows))


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """One matrix of these rows: a view where they lie one after another already, else a copy."""
    first, at = rows[0], rows[0].data_ptr()
    for row in rows:
        apart = row.data_ptr() != at or row.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
        if apart or not row.is_contiguous() or row.shape[1:] != first.shape[1:] or row.dtype != first.dtype:
            return torch.cat(list(rows))
        at += row.numel() * row.element_size()
    return first.as_strided((sum(map(len, rows)), *first.shape[1:]), first.stride())
