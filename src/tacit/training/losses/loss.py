"""What a model is trained for: a number for each sample, and what the model's outputs mean.

A loss is a setting of a study. Before anything is trained it is `fitted` to the outcomes: it learns
how often each class occurs, or what a standardised number was in the target's own units.

>>> from tacit.training.losses.cross_entropy import CrossEntropy
>>> loss = CrossEntropy("balanced").fitted(Outcomes(("alive", "dead"), counts=(90, 10)))
>>> [round(weight, 2) for weight in loss.weights]
[0.56, 5.0]

Per-sample losses are averaged over the samples of a batch, weighted or not. (The mean of torch's
weighted cross-entropy divides by the sum of the batch's weights.) So the mean over the clients,
weighted by their samples, is the loss of all their samples together: one full-batch step of FedSGD
is the step that the pooled data would take.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.data.dataset import Dataset
from tacit.data.encoding import Task
from tacit.models.own import is_own, recall, remember

# from a batch's outputs and targets to each sample's loss, (B,)
LossFunction = Callable[[Tensor, Tensor], Tensor]
WANTED = {"classification": "classes", "regression": "a number to predict"}


@dataclass(frozen=True)
class Outcomes:
    """What a loss may know of the outcomes.

    Sites that keep their rows to themselves merge theirs: counts are added up, and of `least` the
    smallest is kept.
    """

    labels: tuple[str, ...] = ()  # none in a regression
    counts: tuple[int, ...] = ()  # of the training rows of each class
    centre: float = 0.0  # was subtracted from a regression's outcomes,
    spread: float = 1.0  # which were then divided by this
    least: float = 0.0  # the smallest number to predict, in its own units

    @classmethod
    def of(cls, dataset: Dataset) -> Outcomes:
        """The outcomes of a data set.

        Counts are those of all its training rows, before the clients' own tests and the server's
        samples are set aside: they belong to the data, whatever the split and the seed.
        """
        if dataset.task == "regression":
            centre = dataset.target_centre
            spread = dataset.target_spread
            least = min(dataset.y.min().item(), dataset.test_y.min().item())
            return cls(centre=centre, spread=spread, least=least * spread + centre)
        counts = dataset.y.bincount(minlength=dataset.classes)
        return cls(dataset.labels, tuple(counts.tolist()))

    @property
    def task(self) -> Task:
        """Whether there are classes or numbers to predict."""
        return "classification" if self.labels else "regression"


@dataclass(frozen=True)
class Loss(Registered, family="losses", home="tacit.training.losses"):
    """Base of the losses.

    Your own function of (output, y) is a loss too: by its import path, `package.module:function`,
    or as the function itself.
    """

    takes_objects: ClassVar[bool] = True
    task: ClassVar[Task | None] = None  # what it is for; None is both

    @abstractmethod
    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        """Each sample's loss.

        # (B, classes), (B,) or soft (B, classes) -> (B,)
        # in a regression (B, 1), (B,) of floats -> (B,)
        """

    def predicted(self, output: Tensor) -> Tensor:
        """The probabilities of the classes or, in a regression, the standardised number.

        # (..., classes) -> (..., classes)
        # in a regression (..., 1) -> (...)
        """
        if output.shape[-1] > 1:
            return output.softmax(-1)
        return output[..., 0]

    def fitted(self, outcomes: Outcomes) -> Loss:
        """The loss for these outcomes, ready to be called; or an error that says why not."""
        self.check_task(outcomes)
        return self

    @property
    def is_usual(self) -> bool:
        """Whether it is `losses`, which our kernels compute too."""
        return False

    @classmethod
    def check_task(cls, outcomes: Outcomes) -> None:
        """Refuses a loss for classes where numbers are predicted, and the other way round."""
        if cls.task in (None, outcomes.task):
            return
        suitable = [name for name, member in Loss.known().items() if member.task == outcomes.task]
        raise StudyError(
            f"{cls.name} is a loss for {WANTED[str(cls.task)]}, and these data have"
            f" {WANTED[outcomes.task]}; use {' or '.join(suitable)}"
        )

    @classmethod
    def build(cls, spec: Any) -> Self:
        if not isinstance(spec, cls) and is_own(spec):
            spec = {"name": "function", "path": remember(spec)}
        if isinstance(spec, str) and ":" in spec and spec[0] not in "{[":
            value = recall(spec)
            if not (isinstance(value, type) and issubclass(value, cls)):
                spec = {"name": "function", "path": spec}
        return super().build(spec)

    @classmethod
    def singular(cls) -> str:
        return "loss"


@dataclass(frozen=True)
class Auto(Loss, name="auto"):
    """Cross-entropy for classes, the squared error for numbers."""

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return losses(output, y)

    @property
    def is_usual(self) -> bool:
        return True


USUAL = Auto()


@dataclass(frozen=True)
class CheckedLoss(Loss):
    """Any function as a loss, refused where it returns anything but one number per sample."""

    function: LossFunction
    title: str = "the loss"  # in errors

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        values = self.function(output, y)
        expected = output.shape[:1]
        shape = values.shape if isinstance(values, Tensor) else None
        if shape != expected:
            actual = type(values).__name__ if shape is None else tuple(shape)
            raise StudyError(
                f"{self.title}: a loss must return one number per sample, {tuple(expected)}; "
                f"it returned {actual}"
            )
        return values

    def predicted(self, output: Tensor) -> Tensor:
        meaning = self.function if isinstance(self.function, Loss) else USUAL
        return meaning.predicted(output)


def checked(loss: LossFunction) -> Loss:
    """The loss, which is refused if it returns anything but one number per sample."""
    return loss if isinstance(loss, CheckedLoss) else CheckedLoss(loss)


def fit_loss(loss: Loss, dataset: Dataset) -> Loss | None:
    """The loss, ready for these data; None for the usual one, of which trainers have fast forms."""
    fitted = loss.fitted(Outcomes.of(dataset))
    return None if fitted.is_usual else fitted


def check_loss(loss: Loss, dataset: Dataset) -> None:
    """Refuses a loss that does not suit these data; it is tried on two samples."""
    fitted = loss.fitted(Outcomes.of(dataset))
    y = dataset.y[:2]
    output = dataset.x.new_zeros(len(y), dataset.outputs)
    checked(fitted)(output, y)


def losses(output: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Each sample's loss, or their mean: cross-entropy for classes, squared error for numbers.

    # (B, classes), (B,) or soft (B, classes) -> (B,)
    # in a regression (B, 1), (B,) of floats -> (B,)
    """
    if is_regression(output, y):
        return functional.mse_loss(output[..., 0], y, reduction=reduction)
    return functional.cross_entropy(output, y, reduction=reduction)


def hits(output: Tensor, y: Tensor, loss: Loss = USUAL) -> Tensor:
    """Whether the most likely class is the right one; for numbers, the squared errors.

    What an output says of a number is known to the loss that it was trained for.

    # (B, outputs), (B,) -> (B,)
    """
    if is_regression(output, y):
        return (loss.predicted(output.detach()) - y).square()
    is_soft = y.dim() == output.dim()
    label = y.argmax(-1) if is_soft else y
    return output.argmax(-1) == label


def is_regression(output: Tensor, y: Tensor) -> bool:
    """Whether numbers are predicted: the targets are floats, one per sample."""
    return y.is_floating_point() and y.dim() == output.dim() - 1
