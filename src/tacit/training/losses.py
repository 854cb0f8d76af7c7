"""What a model is trained for, sample by sample."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError

# from a batch's outputs and targets to each sample's loss, (B,)
Loss = Callable[[Tensor, Tensor], Tensor]


def losses(output: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Each sample's loss, or their mean: cross-entropy for classes, squared error for numbers.

    # (B, classes), (B,) or soft (B, classes) -> (B,)
    # in a regression (B, 1), (B,) of floats -> (B,)
    """
    if is_regression(output, y):
        return functional.mse_loss(output[..., 0], y, reduction=reduction)
    return functional.cross_entropy(output, y, reduction=reduction)


def checked(loss: Loss) -> Loss:
    """The user's own loss, which is refused if it returns anything but one number per sample."""

    def checked_loss(output: Tensor, y: Tensor) -> Tensor:
        values = loss(output, y)
        expected = output.shape[:1]
        if values.shape != expected:
            raise StudyError(
                f"a loss must return one number per sample, {tuple(expected)}; "
                f"it returned {tuple(values.shape)}"
            )
        return values

    return checked_loss


def hits(output: Tensor, y: Tensor) -> Tensor:
    """Whether the most likely class is the right one; for numbers, the squared errors.

    # (B, outputs), (B,) -> (B,)
    """
    if is_regression(output, y):
        return (output[..., 0].detach() - y).square()
    is_soft = y.dim() == output.dim()
    label = y.argmax(-1) if is_soft else y
    return output.argmax(-1) == label


def is_regression(output: Tensor, y: Tensor) -> bool:
    """Whether numbers are predicted: the targets are floats, one per sample."""
    return y.is_floating_point() and y.dim() == output.dim() - 1
