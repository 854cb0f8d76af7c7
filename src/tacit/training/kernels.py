"""Triton kernels for small networks of many rows. Each row has its own weights.

Vendor libraries run such layers as one small kernel per row. Here a layer of all rows is one
kernel, and each program works on one row. Bias, ReLU and pooling are part of the kernel, weights
are read from the (K, P) matrix where they lie, and gradients are written to a matrix of the same
shape. How a row is computed does not depend on how many rows there are, and nothing is added up by
atomics, so the same row gives the same bits in any company.

Convolutions are products of weights and patches, which are gathered on the fly. Pictures are
channels-last, (K, B, H, W, CP): CP is the number of channels, filled up with zeros to a power of
two from four on, so that a thread reads four numbers at once. A tap is one of the KH x KW positions
of a patch; r and q number taps x channels. The last convolution's output is (K, B, O, PH, PW), as
the fully connected layers want it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pack_weights(
    w, packed, stride_w, at, O: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr,
    INNER: tl.constexpr, OUTER: tl.constexpr, INPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights as matrices (taps x INNER, OUTER), filled up with zeros.

    They are of (inputs, outputs) or, for the way back to the inputs, of (outputs, inputs).
    Grid: (blocks, rows).
    """
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size: tl.constexpr = TAPS * INNER * OUTER
    tap = i // (INNER * OUTER)
    inner = i // OUTER % INNER
    outer = i % OUTER
    if INPUTS:
        o = inner
        c = outer
    else:
        o = outer
        c = inner
    source = w + k * stride_w + at + (o * C + c) * TAPS + tap
    value = tl.load(source, mask=(i < size) & (o < O) & (c < C), other=0.0)
    tl.store(packed + k * size + i, value, mask=i < size)


@triton.jit
def conv_forward(
    x, packed, w, out, winners, stride_x, stride_w, at_bias, M,
    H: tl.constexpr, W: tl.constexpr, CP: tl.constexpr, O: tl.constexpr, OP: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    STRIDE: tl.constexpr, PAD: tl.constexpr, POOL: tl.constexpr,
    RELU: tl.constexpr, BIAS: tl.constexpr, KEEP: tl.constexpr, LAST: tl.constexpr,
    BM: tl.constexpr, BR: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, ReLU and the maximum over POOL x POOL.

    `winners` gets the position of the maximum, or POOL^2 where ReLU closed.
    Grid: (blocks of output positions, rows).
    """
    k = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    b = m // (PH * PW)
    py = m // PW % PH
    px = m % PW
    o = tl.arange(0, BO)
    R: tl.constexpr = KH * KW * CP
    best = tl.full((BM, BO), float("-inf"), tl.float32)
    winner = tl.zeros((BM, BO), tl.int32)
    for p in tl.static_range(POOL * POOL):
        top = (py * POOL + p // POOL) * STRIDE - PAD
        left = (px * POOL + p % POOL) * STRIDE - PAD
        acc = tl.zeros((BM, BO), tl.float32)
        for first in range(0, R, BR):
            r = first + tl.arange(0, BR)
            iy = top[:, None] + (r // CP // KW)[None, :]
            ix = left[:, None] + (r // CP % KW)[None, :]
            inside = (m < M)[:, None] & (r < R)[None, :]
            if PAD > 0:
                inside = inside & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
            pixel = x + k * stride_x + ((b[:, None] * H + iy) * W + ix) * CP + (r % CP)[None, :]
            a = tl.load(pixel, mask=inside, other=0.0)
            weight = packed + (k * R + r[:, None]) * BO + o[None, :]
            c = tl.load(weight, mask=(r < R)[:, None], other=0.0)
            acc = tl.dot(a, c, acc, input_precision=PRECISION)
        higher = (acc > best) | (acc != acc)
        best = tl.where(higher, acc, best)
        winner = tl.where(higher, p, winner)
    if BIAS:
        best += tl.load(w + k * stride_w + at_bias + o, mask=o < O, other=0.0)[None, :]
    if RELU:
        winner = tl.where(best <= 0, POOL * POOL, winner)
        best = tl.where(best <= 0, 0.0, best)
    if LAST:
        sample = k * M * O + b[:, None] * (O * PH * PW)
        target = sample + o[None, :] * (PH * PW) + (py * PW + px)[:, None]
        real = o < O
    else:
        target = (k * M + m[:, None]) * OP + o[None, :]
        real = o < OP
    tl.store(out + target, best, mask=(m < M)[:, None] & real[None, :])
    if KEEP:
        tl.store(winners + target, winner.to(tl.int8), mask=(m < M)[:, None] & real[None, :])


@triton.jit
def conv_weights(
    x, d_out, winners, partial, stride_x, M,
    H: tl.constexpr, W: tl.constexpr, CP: tl.constexpr, O: tl.constexpr, OP: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    POOL: tl.constexpr, LAST: tl.constexpr, CHUNK: tl.constexpr,
    BM: tl.constexpr, BR: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of weights and bias over one chunk of positions.

    Grid: (blocks of taps, chunks, rows).
    """
    chunk = tl.program_id(1)
    k = tl.program_id(2).to(tl.int64)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    o = tl.arange(0, BO)
    R: tl.constexpr = KH * KW * CP
    samples = M // (OH * OW)
    acc = tl.zeros((BO, BR), tl.float32)
    total = tl.zeros((BM, BO), tl.float32)
    for first in range(0, CHUNK, BM):
        m = chunk * CHUNK + first + tl.arange(0, BM)  # before pooling
        b = m // (OH * OW)
        oy = m // OW % OH
        ox = m % OW
        py = oy // POOL
        px = ox // POOL
        real = ((m < M) & (py < PH) & (px < PW))[:, None] & (o < O)[None, :]
        if LAST:
            channel = (k * samples + b[:, None]) * O + o[None, :]
            source = channel * (PH * PW) + (py * PW + px)[:, None]
        else:
            source = (((k * samples + b) * PH + py) * PW + px)[:, None] * OP + o[None, :]
        g = tl.load(d_out + source, mask=real, other=0.0)
        winner = tl.load(winners + source, mask=real, other=-1)
        d = tl.where(winner == (oy % POOL * POOL + ox % POOL)[:, None], g, 0.0)  # (BM, BO)
        iy = (oy * STRIDE - PAD)[:, None] + (r // CP // KW)[None, :]
        ix = (ox * STRIDE - PAD)[:, None] + (r // CP % KW)[None, :]
        inside = (m < M)[:, None] & (r < R)[None, :]
        if PAD > 0:
            inside = inside & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
        pixel = x + k * stride_x + ((b[:, None] * H + iy) * W + ix) * CP + (r % CP)[None, :]
        a = tl.load(pixel, mask=inside, other=0.0)
        acc = tl.dot(tl.trans(d), a, acc, input_precision=PRECISION)
        total += d
    target = ((k * tl.num_programs(1) + chunk) * O + o) * (R + 1)
    tl.store(partial + target[:, None] + r[None, :], acc, mask=(o < O)[:, None] & (r < R)[None, :])
    if tl.program_id(0) == 0:
        tl.store(partial + target + R, tl.sum(total, 0), mask=o < O)


@triton.jit
def conv_collect(
    partial, g, stride_g, at_weight, at_bias, chunks,
    O: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, TAPS: tl.constexpr,
    BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up the chunks, in order, into the rows of the gradient. Grid: (blocks, rows)."""
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    R: tl.constexpr = TAPS * CP
    size: tl.constexpr = O * (R + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for chunk in range(chunks):
        total += tl.load(partial + (k * chunks + chunk) * size + i, mask=i < size, other=0.0)
    o = i // (R + 1)
    r = i % (R + 1)
    tap = r // CP
    c = r % CP
    target = g + k * stride_g + at_weight + (o * C + c) * TAPS + tap
    tl.store(target, total, mask=(i < size) & (r < R) & (c < C))
    if BIAS:
        tl.store(g + k * stride_g + at_bias + o, total, mask=(i < size) & (r == R))


@triton.jit
def unpool(
    d_out, winners, dense, n,
    O: tl.constexpr, OP: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, POOL: tl.constexpr, LAST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient before ReLU and pooling. Grid: blocks of the K x B x OH x OW x OP numbers."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = i % OP
    ox = i // OP % OW
    oy = i // (OP * OW) % OH
    sample = i // (OP * OW * OH)
    py = oy // POOL
    px = ox // POOL
    real = (i < n) & (py < PH) & (px < PW) & (o < O)
    if LAST:
        source = (sample * O + o) * (PH * PW) + py * PW + px
    else:
        source = ((sample * PH + py) * PW + px) * OP + o
    winner = tl.load(winners + source, mask=real, other=-1)
    value = tl.load(d_out + source, mask=real, other=0.0)
    tl.store(dense + i, tl.where(winner == oy % POOL * POOL + ox % POOL, value, 0.0), mask=i < n)


@triton.jit
def conv_inputs(
    dense, packed, d_x, M,
    H: tl.constexpr, W: tl.constexpr, CP: tl.constexpr, OP: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAD: tl.constexpr,
    BM: tl.constexpr, BR: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The inputs' gradient of a convolution of stride one.

    Grid: (blocks of input positions, rows).
    """
    k = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    b = m // (H * W)
    y = m // W % H
    x = m % W
    c = tl.arange(0, BO)
    Q: tl.constexpr = KH * KW * OP
    samples = M // (H * W)
    acc = tl.zeros((BM, BO), tl.float32)
    for first in range(0, Q, BR):
        q = first + tl.arange(0, BR)
        oy = y[:, None] + PAD - (q // OP // KW)[None, :]
        ox = x[:, None] + PAD - (q // OP % KW)[None, :]
        inside = (m < M)[:, None] & (q < Q)[None, :] & (oy >= 0) & (oy < OH) & (ox >= 0) & (ox < OW)
        source = (((k * samples + b[:, None]) * OH + oy) * OW + ox) * OP + (q % OP)[None, :]
        a = tl.load(dense + source, mask=inside, other=0.0)
        weight = packed + (k * Q + q[:, None]) * BO + c[None, :]
        v = tl.load(weight, mask=(q < Q)[:, None], other=0.0)
        acc = tl.dot(a, v, acc, input_precision=PRECISION)
    target = d_x + (k * M + m[:, None]) * CP + c[None, :]
    tl.store(target, acc, mask=(m < M)[:, None] & (c < CP)[None, :])


@triton.jit
def dense_forward(
    x, w, out, stride_x, stride_w, at_weight, at_bias, B,
    I: tl.constexpr, O: tl.constexpr, RELU: tl.constexpr, BIAS: tl.constexpr,
    BB: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A fully connected layer, bias and ReLU. Grid: (blocks of outputs, of samples, rows)."""
    k = tl.program_id(2).to(tl.int64)
    o = tl.program_id(0) * BO + tl.arange(0, BO)
    b = tl.program_id(1) * BB + tl.arange(0, BB)
    acc = tl.zeros((BB, BO), tl.float32)
    for first in range(0, I, BI):
        i = first + tl.arange(0, BI)
        value = x + k * stride_x + b[:, None] * I + i[None, :]
        a = tl.load(value, mask=(b < B)[:, None] & (i < I)[None, :], other=0.0)
        weight = w + k * stride_w + at_weight + o[None, :] * I + i[:, None]
        c = tl.load(weight, mask=(o < O)[None, :] & (i < I)[:, None], other=0.0)
        acc = tl.dot(a, c, acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(w + k * stride_w + at_bias + o, mask=o < O, other=0.0)[None, :]
    if RELU:
        acc = tl.where(acc <= 0, 0.0, acc)
    target = out + (k * B + b[:, None]) * O + o[None, :]
    tl.store(target, acc, mask=(b < B)[:, None] & (o < O)[None, :])


@triton.jit
def dense_inputs(
    d_out, w, x, d_x, stride_w, at_weight, B,
    I: tl.constexpr, O: tl.constexpr, MASK: tl.constexpr,
    BB: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The inputs' gradient, zero where their ReLU closed.

    Grid: (blocks of inputs, of samples, rows).
    """
    k = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    b = tl.program_id(1) * BB + tl.arange(0, BB)
    acc = tl.zeros((BB, BI), tl.float32)
    for first in range(0, O, BO):
        o = first + tl.arange(0, BO)
        slope = d_out + (k * B + b[:, None]) * O + o[None, :]
        a = tl.load(slope, mask=(b < B)[:, None] & (o < O)[None, :], other=0.0)
        weight = w + k * stride_w + at_weight + o[:, None] * I + i[None, :]
        c = tl.load(weight, mask=(o < O)[:, None] & (i < I)[None, :], other=0.0)
        acc = tl.dot(a, c, acc, input_precision=PRECISION)
    target = (k * B + b[:, None]) * I + i[None, :]
    mask = (b < B)[:, None] & (i < I)[None, :]
    if MASK:
        acc = tl.where(tl.load(x + target, mask=mask, other=0.0) == 0, 0.0, acc)
    tl.store(d_x + target, acc, mask=mask)


@triton.jit
def dense_weights(
    x, d_out, g, stride_x, stride_g, at_weight, at_bias, B,
    I: tl.constexpr, O: tl.constexpr, BIAS: tl.constexpr,
    BB: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of weights and bias, into the rows of g.

    Grid: (blocks of inputs, of outputs, rows).
    """
    k = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    acc = tl.zeros((BO, BI), tl.float32)
    total = tl.zeros((BO,), tl.float32)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB)
        slope = d_out + (k * B + b[None, :]) * O + o[:, None]
        d = tl.load(slope, mask=(b < B)[None, :] & (o < O)[:, None], other=0.0)
        value = x + k * stride_x + b[:, None] * I + i[None, :]
        a = tl.load(value, mask=(b < B)[:, None] & (i < I)[None, :], other=0.0)
        acc = tl.dot(d, a, acc, input_precision=PRECISION)
        total += tl.sum(d, 1)
    target = g + k * stride_g + at_weight + o[:, None] * I + i[None, :]
    tl.store(target, acc, mask=(o < O)[:, None] & (i < I)[None, :])
    if BIAS:
        if tl.program_id(0) == 0:
            tl.store(g + k * stride_g + at_bias + o, total, mask=o < O)


@triton.jit
def cross_entropy(
    logits, y, counts, d_logits, loss, hits, B, O: tl.constexpr, BB: tl.constexpr, BO: tl.constexpr
):  # fmt: skip
    """The mean loss of a row's real samples, its gradient, and how many were right. Grid: rows."""
    k = tl.program_id(0).to(tl.int64)
    count = tl.load(counts + k)
    divisor = tl.maximum(count, 1)  # an empty batch has no loss
    o = tl.arange(0, BO)
    total = 0.0
    right = 0.0
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB)
        at = (k * B + b[:, None]) * O + o[None, :]
        mask = (b < B)[:, None] & (o < O)[None, :]
        z = tl.where((b < B)[:, None], tl.load(logits + at, mask=mask, other=float("-inf")), 0.0)
        label = tl.load(y + k * B + b, mask=b < B, other=0)
        real = b < count
        is_label = o[None, :] == label[:, None]
        top = tl.max(z, 1)
        e = tl.exp(z - top[:, None])
        s = tl.sum(e, 1)
        label_logit = tl.sum(tl.where(is_label, z, 0.0), 1)
        total += tl.sum(tl.where(real, top + tl.log(s) - label_logit, 0.0))
        right += tl.sum(tl.where(real & (tl.argmax(z, 1) == label), 1.0, 0.0))
        d = (e / s[:, None] - tl.where(is_label, 1.0, 0.0)) / divisor
        tl.store(d_logits + at, tl.where(real[:, None], d, 0.0), mask=mask)
    tl.store(loss + k, total / divisor)
    tl.store(hits + k, right)
