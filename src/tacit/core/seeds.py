"""One seed, many independent generators, each with a name.

A generator's state is never stored: `generator(seed, "batches", client, round)` is a function of
its name, so a resumed run, a deployed client and a simulated one draw the same numbers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *name: str | int) -> int:
    """A 63-bit seed for the generator of that name.

    >>> derive(0, "batches", 1) == derive(0, "batches", 1) != derive(0, "batches", 2)
    True
    """
    # NumPy's integers have another repr than Python's
    words = [word if isinstance(word, str) else int(word) for word in name]
    text = repr((int(seed), *words))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *name: str | int) -> torch.Generator:
    """The torch generator (on the CPU) of that name."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *name))


def numpy_generator(seed: int, *name: str | int) -> np.random.Generator:
    """The NumPy generator of that name."""
    return np.random.default_rng(derive(seed, *name))
