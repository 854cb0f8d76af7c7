"""What a model is trained for, sample by sample."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def losses(output: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each sample. # (B, classes), (B,) -> (B,)"""
    return functional.cross_entropy(output, y, reduction="none")


def hits(output: Tensor, y: Tensor) -> Tensor:
    """1 where the most likely class is the right one. # (B, classes), (B,) -> (B,)"""
    return (output.detach().argmax(-1) == y).to(torch.get_default_dtype())
