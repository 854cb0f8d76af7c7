"""Random numbers as a function of (row's seed, step, element).

They have the same bits on a CPU, on a GPU and in a captured graph. The generator is Philox4x32-10
(Salmon, Moraes, Dror, Shaw, 2011), which is counter-based: nothing is stored between two calls, and
a row's numbers do not depend on the other rows. Noise, dropout and augmentation take a `stream`
each, so that they share no numbers.

To have the same bits everywhere, floats are made with + - * / in double precision only, each as a
separate operation, which IEEE 754 rounds the same way on any device. That is why this module has a
logarithm and a root: torch's differ from device to device in the last digit.

>>> seeds, step = torch.tensor([7, 8]), torch.tensor(0)
>>> normals(seeds, step, 3).shape
torch.Size([2, 3])
>>> torch.equal(normals(seeds, step, 3)[1:], normals(seeds[1:], step, 5)[:, :3])
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.core.errors import StudyError

Words = tuple[Tensor, Tensor, Tensor, Tensor]  # of 32 bits, in int64

MASK = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # by which the key grows from round to round
# quadruples of words that are made at a time
CACHED = 2**15  # on a CPU: they stay in its cache
AT_ONCE = 2**23  # on a GPU, where only memory is a limit


class Origin(NamedTuple):
    """What the numbers of a row are a function of."""

    seeds: Tensor  # (K,)
    step: Tensor  # ()
    stream: int


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four words from a counter of four and a key of two."""
    a, b, c, d = counter
    k0, k1 = key
    for round in range(ROUNDS):
        if round:
            k0 = (k0 + WEYL[0]) & MASK
            k1 = (k1 + WEYL[1]) & MASK
        # A product of two words fills 64 bits, and int64 keeps all of them: it wraps, as unsigned
        # numbers do. The halves of a product are cut out late, by one mask for all that is mixed.
        p = a * MULTIPLIERS[0]
        q = c * MULTIPLIERS[1]
        a = ((q >> 32) ^ b ^ k0).bitwise_and_(MASK)
        b = q
        c = ((p >> 32) ^ d ^ k1).bitwise_and_(MASK)
        d = p
    return a, b & MASK, c, d & MASK


def bits(seeds: Tensor, step: Tensor, size: int, stream: int = 0) -> Tensor:
    """Whole numbers below 2^32. # (K,), () -> (K, size) of int64"""
    return _draw(_to_bits, 4, size, Origin(seeds, step, stream))


def uniforms(
    seeds: Tensor, step: Tensor, size: int, stream: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Numbers between 0 and 1, of 53 bits each. # (K,), () -> (K, size)

    They are never 0 or 1 themselves before they are rounded to `dtype`.
    """
    return _draw(_to_uniforms, 2, size, Origin(seeds, step, stream)).to(dtype)


def normals(
    seeds: Tensor, step: Tensor, size: int, stream: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Normal numbers of mean 0 and variance 1, one from each uniform number.

    # (K,), () -> (K, size)
    """

    def to_normals(words: Words) -> Tensor:
        return quantiles(_to_uniforms(words)).to(dtype)

    return _draw(to_normals, 2, size, Origin(seeds, step, stream))


def _draw(
    convert: Callable[[Words], Tensor], per_quadruple: int, size: int, origin: Origin
) -> Tensor:
    """The first `size` numbers of every row.

    `convert` makes `per_quadruple` numbers from each quadruple of words.
    """
    quadruples = -(-size // per_quadruple)
    if not 0 <= origin.stream <= MASK:
        raise StudyError(f"stream: expected a number from 0 to {MASK}, got {origin.stream}")
    if quadruples > MASK:
        most = MASK * per_quadruple
        raise StudyError(f"size: expected at most {most:,} numbers of a row, got {size:,}")
    at_once = CACHED if origin.seeds.device.type == "cpu" else AT_ONCE
    length = max(1, at_once // max(len(origin.seeds), 1))
    chunks = []
    for first in range(0, max(quadruples, 1), length):
        chunk = range(first, min(first + length, quadruples))
        words = _words(origin, chunk)
        chunks.append(convert(words).flatten(1))
    numbers = chunks[0] if len(chunks) == 1 else torch.cat(chunks, 1)
    return numbers[:, :size]


def _words(origin: Origin, quadruples: range) -> Words:
    """Four words for each of these quadruples. # (K, quadruples) each

    The counter is (number of the quadruple, step, stream), and the key is the seed.
    """
    seeds, step, stream = origin
    device = seeds.device
    numbers = torch.arange(quadruples.start, quadruples.stop, device=device)
    number = numbers.expand(len(seeds), -1)
    stream_word = torch.full((), stream, dtype=torch.int64, device=device)
    counter = (number, step & MASK, (step >> 32) & MASK, stream_word)
    seed = seeds.long()[:, None]
    key = (seed & MASK, (seed >> 32) & MASK)
    return philox(counter, key)


def _to_bits(words: Words) -> Tensor:
    return torch.stack(words, 2)


def _to_uniforms(words: Words) -> Tensor:
    """Two numbers from four words, each a multiple of 2^-53 from 1 on.

    # (K, quadruples) -> (K, quadruples, 2)
    """
    a, b, c, d = words
    numbers = torch.stack([_joined(a, b), _joined(c, d)], 2)
    return numbers.clamp_(min=1).double().mul_(2.0**-53)


def _joined(high: Tensor, low: Tensor) -> Tensor:
    """27 bits of one word and 26 of another."""
    return ((high >> 5) << 26).bitwise_or_(low >> 6)


# Wichura, 1988, algorithm AS 241, PPND16: the quantiles of the normal distribution to 16 digits.
# A pair of polynomials, above and below the fraction bar, from the highest power on.
CENTRE = (
    (
        2509.0809287301226727, 33430.575583588128105,
        67265.770927008700853, 45921.953931549871457,
        13731.693765509461125, 1971.5909503065514427,
        133.14166789178437745, 3.387132872796366608,
    ),
    (
        5226.495278852854561, 28729.085735721942674,
        39307.89580009271061, 21213.794301586595867,
        5394.1960214247511077, 687.1870074920579083,
        42.313330701600911252, 1.0,
    ),
)  # fmt: skip
TAIL = (
    (
        7.7454501427834140764e-4, 0.0227238449892691845833,
        0.24178072517745061177, 1.27045825245236838258,
        3.64784832476320460504, 5.7694972214606914055,
        4.6303378461565452959, 1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9, 5.475938084995344946e-4,
        0.0151986665636164571966, 0.14810397642748007459,
        0.68976733498510000455, 1.6763848301838038494,
        2.05319162663775882187, 1.0,
    ),
)  # fmt: skip
FAR = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5,
        0.0012426609473880784386, 0.026532189526576123093,
        0.29656057182850489123, 1.7848265399172913358,
        5.4637849111641143699, 6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15, 1.4215117583164458887e-7,
        1.8463183175100546818e-5, 7.868691311456132591e-4,
        0.0148753612908506148525, 0.13692988092273580531,
        0.59983220655588793769, 1.0,
    ),
)  # fmt: skip
INNER = 0.425  # distance from the median, in probability
NEAR = 5.0  # of the root of the logarithm


def quantiles(u: Tensor) -> Tensor:
    """The quantiles of the normal distribution at u, of float64 between 0 and 1."""
    q = u - 0.5
    inner = q * _ratio(CENTRE, INNER * INNER - q * q)
    is_outer = q.abs() > INNER
    if u.is_cuda:
        # A captured graph cannot ask which numbers lie in the tails, so both are computed for all.
        return torch.where(is_outer, _outer(u), inner)
    positions = is_outer.view(-1).nonzero()[:, 0]
    tails = _outer(u.reshape(-1).index_select(0, positions))
    inner.view(-1).index_copy_(0, positions, tails)
    return inner


def _outer(u: Tensor) -> Tensor:
    """The quantiles in the tails."""
    below = u < 0.5
    tail = torch.where(below, u, 1 - u)
    r = root(logarithm(tail).neg_())
    is_far = r > NEAR
    size = torch.where(is_far, _ratio(FAR, r - NEAR), _ratio(TAIL, r - 1.6))
    return torch.where(below, -size, size)


def _ratio(polynomials: tuple[Sequence[float], Sequence[float]], r: Tensor) -> Tensor:
    numerator = _polynomial(polynomials[0], r)
    denominator = _polynomial(polynomials[1], r)
    return numerator.div_(denominator)


def _polynomial(coefficients: Sequence[float], r: Tensor) -> Tensor:
    """By Horner's rule, in place; product and sum are separate operations, so that both round."""
    total = r * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total.add_(coefficient).mul_(r)
    return total.add_(coefficients[-1])


# The logarithm of FreeBSD's msun (e_log.c, Sun Microsystems, 1993), with its coefficients.
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
SERIES = (
    1.479819860511658591e-01, 1.531383769920937332e-01,
    1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip
MANTISSA = (1 << 52) - 1
HALF = 0x3FE << 52
ROOT_HALF = 0.7071067811865476
HERON = 5  # steps of the root


def root(x: Tensor) -> Tensor:
    """The square root of normal float64 above 0, right to the last digit or the one before.

    Heron's steps need only sums and divisions. They start at half the exponent, which the bits of
    a float give to 4 %, and every step doubles the number of right digits.
    """
    pattern = x.contiguous().view(torch.int64)
    estimate = ((pattern >> 1) + (0x3FF << 51)).view(torch.float64)
    for _ in range(HERON):
        estimate = (estimate + x / estimate).mul_(0.5)
    return estimate


def logarithm(x: Tensor) -> Tensor:
    """The natural logarithm of normal float64 above 0, as exact as `root`."""
    pattern = x.contiguous().view(torch.int64)
    mantissa = (pattern & MANTISSA).bitwise_or_(HALF).view(torch.float64)  # from 1/2 to 1
    is_small = mantissa < ROOT_HALF
    exponent = ((pattern >> 52) - 1022 - is_small.long()).double()
    f = torch.where(is_small, mantissa * 2, mantissa) - 1
    s = f / (f + 2)
    z = s * s
    series = _polynomial(SERIES, z).mul_(z)
    half = f * f * 0.5
    correction = s * (half + series) + exponent * LN2_LOW
    return exponent * LN2_HIGH - ((half - correction) - f)
