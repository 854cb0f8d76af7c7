"""One model of several that were trained apart, with a picture of how they were matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tacit.federated.fusion.models import FusedModels, Method, fuse_models
from tacit.report.matching_picture import draw_matching
from tacit.report.pictures import Picture


@dataclass(frozen=True, repr=False)
class FusedModel(FusedModels):
    """What `tacit.fuse` returns."""

    def plot(self) -> Picture:
        """Which neuron became which."""
        is_network = isinstance(self.model, nn.Module | Mapping)
        noun = "neurons" if is_network else "vectors"
        assignment = [[neurons.tolist() for neurons in layer] for layer in self.assignment]
        return Picture(draw_matching(assignment, self.widths, self.names, noun))


def fuse(models: Sequence[Any], method: Method, *, counts: Any, seed: int) -> FusedModel:
    """Fuses networks, mixtures or bags of vectors; see `tacit.fuse`."""
    fused = fuse_models(models, method, counts=counts, seed=seed)
    return FusedModel(fused.model, fused.assignment, fused.widths, fused.names)
