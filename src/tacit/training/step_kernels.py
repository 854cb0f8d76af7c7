"""Triton kernels for what surrounds the gradient in a captured step: batch, totals and Adam."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def take_batch(
    samples, targets, batches, batch_counts, step, x, y, counts, capacity, width, size,
    SCALE: tl.constexpr, SIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x[k, b] = samples[batches[step, k, b]] / SCALE, and y and counts likewise.

    Grid: (rows x width, blocks of a sample).
    """
    sample = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    k = sample // width
    b = sample % width
    t = tl.load(step)
    index = tl.load(batches + (t * capacity + k) * width + b).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(samples + index * size + at, mask=at < size, other=0).to(tl.float32)
    if SCALE != 1:
        value = tl.math.div_rn(value, tl.full((BLOCK,), SCALE, tl.float32))
    if SIGNED:
        value = (value - 0.5) * 2
    tl.store(x + sample * size + at, value, mask=at < size)
    if block == 0:
        tl.store(y + sample, tl.load(targets + index))
        if b == 0:
            tl.store(counts + k, tl.load(batch_counts + t * capacity + k))


@triton.jit
def add_step(mean_loss, right, count, loss, hits, seen, steps, rows, BLOCK: tl.constexpr):
    """Adds a step to its rows' totals: loss, hits, samples seen and steps. Grid: blocks of rows."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < rows
    n = tl.load(count + k, mask=mask).to(tl.float32)
    new_loss = tl.load(loss + k, mask=mask) + tl.load(mean_loss + k, mask=mask) * n
    tl.store(loss + k, new_loss, mask=mask)
    new_hits = tl.load(hits + k, mask=mask) + tl.load(right + k, mask=mask)
    tl.store(hits + k, new_hits, mask=mask)
    tl.store(seen + k, tl.load(seen + k, mask=mask) + n, mask=mask)
    tl.store(steps + k, tl.load(steps + k, mask=mask) + 1.0, mask=mask)


@triton.jit
def adam_counts(s1, s2, beta1, beta2, rows, BLOCK: tl.constexpr):
    """s <- 1 + beta s. Grid: blocks of rows."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < rows
    tl.store(s1 + k, 1 + tl.load(beta1 + k, mask=mask) * tl.load(s1 + k, mask=mask), mask=mask)
    tl.store(s2 + k, 1 + tl.load(beta2 + k, mask=mask) * tl.load(s2 + k, mask=mask), mask=mask)


@triton.jit
def adam(w, g, m, v, s1, s2, lr, eps, stride, size, BLOCK: tl.constexpr):
    """One step of Adam in place, by the rule of `optimisers.Adam`; s1 and s2 are this step's.

    Grid: (blocks of numbers, rows).
    """
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < size
    gradient = tl.load(g + k * stride + i, mask=mask, other=0.0)
    mean = tl.load(m + k * stride + i, mask=mask)
    square = tl.load(v + k * stride + i, mask=mask)
    mean += (gradient - mean) / tl.load(s1 + k)
    square += (gradient * gradient - square) / tl.load(s2 + k)
    change = tl.load(lr + k) * (mean / (tl.sqrt(square) + tl.load(eps + k)))
    tl.store(w + k * stride + i, tl.load(w + k * stride + i, mask=mask) - change, mask=mask)
    tl.store(m + k * stride + i, mean, mask=mask)
    tl.store(v + k * stride + i, square, mask=mask)
