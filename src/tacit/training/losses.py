"""What a model is trained for, sample by sample."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def losses(output: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Cross-entropy of each sample, or their mean. # (B, classes), (B,) or soft (B, classes) -> (B,)"""
    return functional.cross_entropy(output, y, reduction=reduction)


def hits(output: Tensor, y: Tensor) -> Tensor:
    """Where the most likely class is the right one. # (B, classes), (B,) -> (B,)"""
    return output.argmax(-1) == (y.argmax(-1) if y.dim() == output.dim() else y)
