"""Torch's process-wide settings that training changes for a while: generator, precision, device."""

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
    """Switches TF32 in matrix products and convolutions on a GPU on or off, and back at the end."""
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
    """On a GPU: makes it the current device, to which kernels and graphs belong, and sets TF32."""
    if device.type == "cpu":
        yield
        return
    with torch.cuda.device(device), precision(tf32):
        yield


@contextmanager
def generator_seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Gives torch's own generator this seed, for models that draw while they train.

    Its state from before comes back at the end.
    """
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed also looks for devices that nobody uses, which takes longer than a
            # small model's step
            torch.default_generator.manual_seed(seed)
            yield
        return
    with torch.random.fork_rng(devices=[device]):
        torch.manual_seed(seed)
        yield


def draws_numbers(module: nn.Module, x: Tensor) -> bool:
    """Whether the model draws numbers while it trains, as dropout does.

    Rows of such a model are seeded one by one.
    """
    if any(map(is_dropout, module.modules())):
        return True
    gpus = [x.device] if x.is_cuda else []
    generator = torch.default_generator
    if x.is_cuda:
        generator = torch.cuda.default_generators[x.device.index or 0]
    with torch.random.fork_rng(devices=gpus):
        before = generator.get_state()
        try:
            copy.deepcopy(module).train()(x)
        except Exception:
            # from the user's own code, or from a layer that wants more samples: the error is shown
            # when the model is trained
            return False
        return not torch.equal(before, generator.get_state())
