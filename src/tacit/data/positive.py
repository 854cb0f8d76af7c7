"""Which of two classes is the positive one: the one that sensitivity and precision are about.

>>> guess_positive(("no", "yes"), torch.tensor([0, 1, 1]))
1
>>> guess_positive(("ill", "well"), torch.tensor([0, 1, 1]))
0
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.errors import DataError, suggest

YES = frozenset({"yes", "true", "positive", "pos", "y", "t", "1"})
YES_IN_YAML = ("yes", "on", "y", "true", "1")  # YAML reads some of these words as true
NO_IN_YAML = ("no", "off", "n", "false", "0")


def guess_positive(labels: tuple[str, ...], y: Tensor) -> int:
    """The code of the positive class of two.

    That is the larger of two numbers, the true one of two truth values, the one that says yes or,
    where the labels do not tell, the class that is rarer in the training rows.
    """
    numbers = _as_numbers(labels)
    if numbers is not None:
        return int(numbers[1] > numbers[0])
    says_yes = [label.strip().lower() in YES for label in labels]
    if sum(says_yes) == 1:
        return says_yes.index(True)
    counts = torch.bincount(y, minlength=2)
    return int(counts[1] <= counts[0])


def find_positive(name: str, positive: object, labels: tuple[str, ...]) -> int:
    """The code of the class that the user has named."""
    if not labels:
        raise DataError(f"positive: {name} is a number to predict, so leave positive out")
    if len(labels) != 2:
        raise DataError(
            f"positive: {name} has {len(labels)} classes, and only one of two can be positive;"
            " leave positive out"
        )
    text = str(positive).strip()
    if text in labels:
        return labels.index(text)
    if isinstance(positive, bool):  # in YAML, yes is another word for true
        words = YES_IN_YAML if positive else NO_IN_YAML
        meant = [label.strip().lower() in words for label in labels]
        if sum(meant) == 1:
            return meant.index(True)
    raise DataError(f"positive: {name} has no class {text!r}; {suggest(text, labels)}")


def _as_numbers(labels: tuple[str, ...]) -> list[float] | None:
    """The labels as numbers; None where one of them is no number."""
    truths = {"False": 0.0, "True": 1.0}
    try:
        return [truths[label] if label in truths else float(label) for label in labels]
    except ValueError:
        return None
