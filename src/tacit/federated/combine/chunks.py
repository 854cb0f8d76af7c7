"""Arithmetic on a (K, P) matrix, some columns at a time.

So no second matrix of that size is ever held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

CELLS = 1 << 19  # of a chunk: large enough for a good matrix product, small enough for the cache


def column_chunks(rows: Tensor, cells: int = CELLS) -> Iterator[slice]:
    """Slices that cover the columns of a (K, P) matrix."""
    width = max(1, cells // max(1, len(rows)))
    for start in range(0, rows.shape[1], width):
        yield slice(start, start + width)


def mean_of_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the chosen rows, whatever the others hold. # (K, P), (m,) -> (P,)"""
    if len(chosen) == 1:
        return rows[int(chosen)].clone()
    weights = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    weights[chosen] = 1 / len(chosen)
    mean = weights @ rows  # one pass
    if mean.isfinite().all():
        return mean
    # Zero times NaN is NaN, so the rows that were not chosen must be left out.
    return torch.cat([rows[chosen, columns].mean(0) for columns in column_chunks(rows)])


def reduce_sorted(rows: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Sorts each column and reduces it. # (K, P) -> (P,)

    `reduce` takes (columns, K) in ascending order. NaN counts as the largest value. On a CPU, NumPy
    sorts: its vectorised sort of short rows is seven times as fast as torch's.
    """

    def sort_with_torch(columns: slice) -> Tensor:
        ordered = rows[:, columns].T.sort(1)[0]
        return reduce(ordered)

    def sort_with_numpy(columns: slice) -> Tensor:
        ordered = rows[:, columns].T.contiguous().numpy()
        ordered.sort(axis=1)
        return reduce(torch.from_numpy(ordered))

    if rows.device.type != "cpu":
        chunks = column_chunks(rows, 64 * CELLS)
        return torch.cat([sort_with_torch(columns) for columns in chunks])
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        reduced = pool.map(sort_with_numpy, column_chunks(rows, CELLS // 4))
        return torch.cat(list(reduced))


def gram(rows: Tensor, centre: Tensor) -> Tensor:
    """(X - c) (X - c)^T in double precision, of products in the rows' own precision.

    (K, P), (P,) -> (K, K)
    """
    K = len(rows)
    total = torch.zeros(K, K, dtype=torch.float64, device=rows.device)
    buffer: Tensor | None = None  # for all chunks: fresh memory would cost as much as the product
    for columns in column_chunks(rows):
        chunk = rows[:, columns]
        if buffer is not None and buffer.shape == chunk.shape:
            torch.sub(chunk, centre[columns], out=buffer)
        else:
            buffer = chunk - centre[columns]
        on_cpu = buffer.device.type == "cpu"
        centred = buffer if on_cpu else buffer.double()  # a GPU may round products to TF32
        total += centred @ centred.T
    return total


def row_lengths(rows: Tensor) -> Tensor:
    """Each row's length; infinite where it holds NaN or its squares overflow. # (K, P) -> (K,)"""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths.nan_to_num(nan=torch.inf, posinf=torch.inf)


def typical(lengths: Tensor) -> Tensor:
    """The index of the median among the finite lengths.

    With a minority of liars, some honest row is at least as long.
    """
    finite = int(lengths.isfinite().sum())
    middle = max(0, finite - 1) // 2
    return lengths.argsort(stable=True)[middle]
