"""What torch keeps for the whole process and training sets for a while: its generator, its precision, its device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.torch_private import is_dropout


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """TF32 in matrix products and convolutions on a GPU, or not; as it was, afterwards."""
    libraries: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [library.allow_tf32 for library in libraries]
    for library in libraries:
        library.allow_tf32 = tf32
    try:
        yield
    finally:
        for library, value in zip(libraries, before, strict=True):
            library.allow_tf32 = value


@contextmanager
def computing_on(device: torch.device, tf32: bool) -> Iterator[None]:
    """On a GPU: kernels and graphs belong to the device that is current, and products are rounded as asked."""
    if device.type == "cpu":
        yield
        return
    with torch.cuda.device(device), precision(tf32):
        yield


@contextmanager
def generator_seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own generator with this seed, for models that draw while they train; as it was, afterwards."""
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed also looks for devices that nobody uses, which costs more than a small model's step
            torch.default_generator.manual_seed(seed)
            yield
        return
    with torch.random.fork_rng(devices=[device]):
        torch.manual_seed(seed)
        yield


def draws_numbers(module: nn.Module, x: Tensor) -> bool:
    """Whether the model draws while it trains, as dropout does: rows that draw are seeded one by one."""
    if any(map(is_dropout, module.modules())):
        return True
    gpus = [x.device] if x.is_cuda else []
    source = (
        torch.cuda.default_generators[x.device.index or 0] if x.is_cuda else torch.default_generator
    )
    with torch.random.fork_rng(devices=gpus):
        before = source.get_state()
        try:
            copy.deepcopy(module).train()(x)
        except (
            Exception
        ):  # of the user's own code, or of layers that want more samples: told when it is trained
            return False
        return not torch.equal(before, source.get_state())
