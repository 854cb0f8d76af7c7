"""How good a model is, sample by sample, so that any grouping of the samples costs one pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit.training.channels import turn
from tacit.training.losses import hits, losses


@torch.no_grad()
def evaluate(module: nn.Module, x: Tensor, y: Tensor, chunk: int = 1024) -> tuple[Tensor, Tensor]:
    """Each sample's loss and whether it was classified rightly, or its squared error. # (n,), (n,)"""
    turn(module.eval())
    outputs = [module(part) for part in x.split(chunk)]
    pairs = [(losses(out, part), hits(out, part)) for out, part in zip(outputs, y.split(chunk), strict=True)]
    empty = x.new_zeros(0)
    return torch.cat([empty, *(pair[0] for pair in pairs)]), torch.cat([empty.bool(), *(pair[1] for pair in pairs)])
