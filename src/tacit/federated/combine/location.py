"""Where the middle of some rows is, in Huber's sense.

It lies between the median (rho -> 0) and the mean (rho -> infinity).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tacit.federated.combine.chunks import column_chunks, gram, row_lengths, typical

TOLERANCE = 1e-10  # on the shares of the rows in a spatial location
STEPS = 10_000
FAR = 1e3  # rows further out than this many median distances are drawn in, along their ray


def huber_location(rows: Tensor, rho: float) -> Tensor:
    """Each coordinate's root t of sum_k clip(x_k - t, -rho, rho) = 0. # (K, P) -> (P,)"""
    return torch.cat([_huber(rows[:, columns], rho) for columns in column_chunks(rows)])


def _huber(x: Tensor, rho: float) -> Tensor:
    """Newton's steps between the bounds that the median gives.

    The sum is piecewise linear, so they end exactly.
    """
    ordered = x.sort(0)[0]
    lower = ordered[(len(x) - 1) // 2]
    upper = ordered[len(x) // 2]
    median = (lower + upper) / 2
    if rho == 0:
        return median
    low = torch.maximum(median - rho, ordered[0])
    high = torch.minimum(median + rho, ordered[-1])
    t = median
    for _ in range(100):
        gap = x - t
        pull = gap.clamp(-rho, rho).sum(0)
        slope = (gap.abs() < rho).sum(0)
        low = torch.where(pull > 0, t, low)
        high = torch.where(pull < 0, t, high)
        newton = t + pull / slope
        inside = (slope > 0) & (newton >= low) & (newton <= high)
        step = torch.where(inside, newton, (low + high) / 2)
        next_t = torch.where(pull == 0, t, step)
        if torch.equal(next_t, t):
            break
        t = next_t
    return t


def spatial_huber_location(rows: Tensor, rho: float) -> Tensor:
    """The z that minimises sum_k h(|x_k - z|), h quadratic up to rho and linear beyond.

    z is a weighted mean of the rows, so Weiszfeld's steps need their inner products only: one pass
    over the matrix, and then steps on K numbers. Rows that are not finite are left out. Very far
    ones are drawn in along their ray, which does not move z; then passes are repeated from the new
    z until it stays. # (K, P) -> (P,)
    """
    lengths = row_lengths(rows)
    finite = lengths.isfinite()
    if not finite.all():
        rows = rows[finite]
        lengths = lengths[finite]
    if len(rows) < 2 or rho == math.inf:
        return rows.mean(0)
    z = rows[typical(lengths)]
    for _ in range(5):
        products = gram(rows, z)
        lengths = products.diagonal().sqrt()
        limit = FAR * lengths.median()
        too_far = (lengths > limit) & (limit > 0)
        scale = torch.where(too_far, limit / lengths, 1.0)
        shares = _weiszfeld(products * scale[:, None] * scale, rho) * scale
        if (scale == 1).all():
            return shares.to(rows) @ rows
        offset = _offset(rows, z, shares.to(rows))
        z = z + offset
        if offset.norm() <= 1e-6 * lengths.median():
            break
    return z


def _offset(rows: Tensor, z: Tensor, shares: Tensor) -> Tensor:
    """sum_k share_k (x_k - z). # (K, P), (P,), (K,) -> (P,)"""
    chunks = column_chunks(rows)
    return torch.cat([shares @ (rows[:, columns] - z[columns]) for columns in chunks])


def _weiszfeld(products: Tensor, rho: float) -> Tensor:
    """The shares of the rows in their spatial location, from their inner products. # (K, K) -> (K,)

    In NumPy: the steps are many and small, and on a busy machine torch's threads would wait for
    each other at every step.
    """
    g = products.cpu().numpy()
    squares = g.diagonal()
    longest = math.sqrt(squares.max())
    rho = max(rho, 1e-12 * longest, 1e-150)  # a step from a row itself needs some width
    shares = np.full(len(g), 1 / len(g))
    for _ in range(STEPS):
        mixed = g @ shares
        distances = np.sqrt(np.maximum(squares - 2 * mixed + shares @ mixed, 0))
        pulls = 1 / np.maximum(distances, rho)
        old = shares
        shares = pulls / pulls.sum()
        if np.abs(shares - old).max() <= TOLERANCE:
            break
    return torch.from_numpy(shares).to(products.device)
