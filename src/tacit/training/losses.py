"""What a model is trained for, sample by sample."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError

Loss = Callable[
    [Tensor, Tensor], Tensor
]  # a batch's outputs and targets -> each sample's loss, (B,)


def losses(output: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Each sample's loss, or their mean: cross-entropy for classes, the squared error for numbers.

    # (B, classes), (B,) or soft (B, classes) -> (B,); in a regression (B, 1), (B,) of floats -> (B,)
    """
    if is_regression(output, y):
        return functional.mse_loss(output[..., 0], y, reduction=reduction)
    return functional.cross_entropy(output, y, reduction=reduction)


def checked(loss: Loss) -> Loss:
    """A loss of the user's own that refuses to return anything but one number per sample."""

    def each(output: Tensor, y: Tensor) -> Tensor:
        values = loss(output, y)
        if values.shape != output.shape[:1]:
            wanted, given = tuple(output.shape[:1]), tuple(values.shape)
            raise StudyError(
                f"a loss must return one number per sample, {wanted}; it returned {given}"
            )
        return values

    return each


def hits(output: Tensor, y: Tensor) -> Tensor:
    """Where the most likely class is the right one, or, of numbers, the squared errors. # (B, outputs), (B,) -> (B,)"""
    if is_regression(output, y):
        return (output[..., 0].detach() - y).square()
    return output.argmax(-1) == (y.argmax(-1) if y.dim() == output.dim() else y)


def is_regression(output: Tensor, y: Tensor) -> bool:
    """Whether these are numbers to predict: floats, and one of them per sample."""
    return y.is_floating_point() and y.dim() == output.dim() - 1
