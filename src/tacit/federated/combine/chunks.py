"""Arithmetic on a (K, P) matrix, some columns at a time, so that nothing else of its size is ever held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

CELLS = 1 << 19  # of a block: large enough for a good matrix product, small enough for the cache


def column_chunks(rows: Tensor, cells: int = CELLS) -> Iterator[slice]:
    """Slices that cover the columns of a (K, P) matrix."""
    width = max(1, cells // max(1, len(rows)))
    return (slice(start, start + width) for start in range(0, rows.shape[1], width))


def mean_of_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """The mean of some rows; the others do not count, whatever they hold. # (K, P), (m,) -> (P,)"""
    if len(chosen) == 1:
        return rows[int(chosen)].clone()
    weights = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    weights[chosen] = 1 / len(chosen)
    mean = weights @ rows  # one pass
    if mean.isfinite().all():
        return mean
    return torch.cat(
        [rows[chosen, columns].mean(0) for columns in column_chunks(rows)]
    )  # zero times NaN is NaN


def reduce_sorted(rows: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Sorts each column and reduces it: `reduce` takes (columns, K) in ascending order. # (K, P) -> (P,)

    NaN counts as the largest value. On a CPU, NumPy sorts: its vectorised sort of short rows is seven times as fast as
    torch's.
    """
    if rows.device.type != "cpu":
        return torch.cat(
            [reduce(rows[:, columns].T.sort(1)[0]) for columns in column_chunks(rows, 64 * CELLS)]
        )

    def one(columns: slice) -> Tensor:
        block = rows[:, columns].T.contiguous().numpy()
        block.sort(axis=1)
        return reduce(torch.from_numpy(block))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return torch.cat(list(pool.map(one, column_chunks(rows, CELLS // 4))))


def gram(rows: Tensor, centre: Tensor) -> Tensor:
    """(X - c) (X - c)^T in double precision, of products in the rows' own. # (K, P), (P,) -> (K, K)"""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    room: Tensor | None = None  # one block for all: fresh memory would cost as much as the product
    for columns in column_chunks(rows):
        part = rows[:, columns]
        fits = room is not None and room.shape == part.shape
        room = torch.sub(part, centre[columns], out=room) if fits else part - centre[columns]
        block = (
            room if room.device.type == "cpu" else room.double()
        )  # a GPU may round products to TF32
        total += block @ block.T
    return total


def row_lengths(rows: Tensor) -> Tensor:
    """Each row's length, infinite for rows that hold NaN or numbers whose squares overflow. # (K, P) -> (K,)"""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths.nan_to_num(nan=torch.inf, posinf=torch.inf)


def typical(lengths: Tensor) -> Tensor:
    """The index of the median of the finite lengths: with a minority of liars, no longer than all honest ones."""
    return lengths.argsort(stable=True)[max(0, int(lengths.isfinite().sum()) - 1) // 2]
