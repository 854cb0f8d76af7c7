"""What each class weighs in a loss: given, or so that every class counts as much as any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from tacit.core.errors import StudyError, shown, suggest
from tacit.training.losses.loss import Outcomes

ClassWeights = Literal["balanced"] | tuple[float, ...] | Mapping[str, float] | None


def checked_weights(name: str, weights: ClassWeights) -> ClassWeights:
    """The weights as a file would have them; refuses what cannot weigh anything."""
    if weights is None or weights == "balanced":
        return weights
    if isinstance(weights, Mapping):
        by_label = {str(label): _number(name, weight) for label, weight in weights.items()}
        _refuse_negative(name, list(by_label.values()))
        return by_label
    by_class = tuple(_number(name, weight) for weight in weights)
    _refuse_negative(name, list(by_class))
    if not any(by_class):
        raise StudyError(f"{name}.weights: all are 0, so nothing would be learnt")
    return by_class


def weights_by_class(
    name: str, weights: ClassWeights, outcomes: Outcomes
) -> tuple[float, ...] | None:
    """The weight of each class, in their order; None where all weigh 1."""
    if weights is None:
        return None
    if weights == "balanced":
        return _balanced(name, outcomes)
    if isinstance(weights, Mapping):
        return _named(name, weights, outcomes.labels)
    assert isinstance(weights, tuple)
    if len(weights) != len(outcomes.labels):
        raise StudyError(
            f"{name}.weights: expected {len(outcomes.labels)} numbers, one for each of"
            f" {', '.join(outcomes.labels)}; got {len(weights)}"
        )
    return weights


def as_tensor(name: str, weights: ClassWeights, like: Tensor) -> Tensor | None:
    """The weights of fitted losses, of this type and on this device. # (classes,)"""
    if weights is None:
        return None
    if not isinstance(weights, tuple):
        raise StudyError(
            f"{name}.weights: {shown(weights)} depends on the data;"
            " call fitted(Outcomes.of(dataset)) first"
        )
    if like.device.type == "cpu":
        return torch.tensor(weights, dtype=like.dtype)
    # a captured step cannot copy numbers from the host, but it can fill tensors with them
    filled = [torch.full((), weight, dtype=like.dtype, device=like.device) for weight in weights]
    return torch.stack(filled)


def _balanced(name: str, outcomes: Outcomes) -> tuple[float, ...]:
    """n / (classes x count), as scikit-learn's `class_weight="balanced"`."""
    for label, count in zip(outcomes.labels, outcomes.counts, strict=True):
        if not count:
            raise StudyError(
                f"{name}.weights: balanced needs a training row of every class, and {label} has"
                " none; give the weights as {label: weight}"
            )
    samples = sum(outcomes.counts)
    classes = len(outcomes.counts)
    return tuple(samples / (classes * count) for count in outcomes.counts)


def _named(name: str, weights: Mapping[str, float], labels: tuple[str, ...]) -> tuple[float, ...]:
    """The weights of the labels; those that are not named weigh 1."""
    for label in weights:
        if label not in labels:
            hint = suggest(label, labels)
            if label in ("True", "False"):
                hint = f"{hint}; YAML reads yes and no as true and false, so put them in quotes"
            raise StudyError(f"{name}.weights: no class is called {shown(label)}; {hint}")
    by_class = tuple(weights.get(label, 1.0) for label in labels)
    if not any(by_class):
        raise StudyError(f"{name}.weights: all are 0, so nothing would be learnt")
    return by_class


def _number(name: str, weight: float) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError):
        raise StudyError(f"{name}.weights: expected numbers, got {shown(weight)}") from None


def _refuse_negative(name: str, weights: list[float]) -> None:
    for weight in weights:
        if not (math.isfinite(weight) and weight >= 0):
            raise StudyError(f"{name}.weights: expected numbers of 0 or more, got {weight:g}")
