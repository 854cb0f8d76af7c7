"""Models that were trained elsewhere, made one: `tacit.fuse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from tacit.core.errors import DataError, StudyError
from tacit.core.seeds import numpy_generator
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Assignment, Fusion, check_networks
from tacit.federated.fusion.matching import Floats, Matching
from tacit.federated.fusion.mixtures import fuse_mixtures
from tacit.federated.fusion.spahm import Spahm
from tacit.models.files import read_state, write_state
from tacit.report.fusion_plots import draw_matching
from tacit.report.fusions import Sharing
from tacit.report.pictures import Picture


@dataclass(frozen=True)
class FusedModel:
    """One model of many: what it is, and which of its parts (neurons, components, vectors) each client's are.

    `model` is of the kind that was given: a module, a dict of tensors, a mixture or a matrix of vectors.
    `assignment[layer][client]` has the number of the global neuron for each of the client's own.
    """

    model: Any
    assignment: Assignment
    widths: tuple[int, ...]  # of each hidden layer; of vectors, how many there are
    names: tuple[str, ...]  # of the clients

    @property
    def local_widths(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, those of the clients' models."""
        return tuple(tuple(len(own) for own in layer) for layer in self.assignment)

    @property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, how many global neurons one client has, two have, and so on."""
        found = [Sharing.of(*pair).shares for pair in zip(self._places, self.widths, strict=True)]
        return tuple((*shares, *[0] * (len(self.names) - len(shares))) for shares in found)

    def save(self, path: str | Path) -> Path:
        """Writes the weights as a dict of tensors, in torch's format or, by the file's name, as safetensors."""
        state = self.model.state_dict() if isinstance(self.model, nn.Module) else self.model
        if not isinstance(state, Mapping):
            raise StudyError(f"only networks have weights to save; got {type(self.model).__name__}")
        write_state(Path(path), state)
        return Path(path)

    def plot(self) -> Picture:
        """Which neuron became which."""
        parts = "neurons" if isinstance(self.model, nn.Module | Mapping) else "vectors"
        return Picture(draw_matching(self._places, self.widths, self.names, parts))

    @property
    def _places(self) -> list[list[list[int]]]:
        return [[own.tolist() for own in layer] for layer in self.assignment]

    def __repr__(self) -> str:
        return f"{len(self.names)} models of {_sizes(self.local_widths)} fused into one of {_sizes(self.widths)}"


def fuse(
    models: Sequence[Any], method: str | Mapping[str, Any] | Fusion = "pfnm", *, counts: Any = None, seed: int = 0
) -> FusedModel:
    """Fuses networks, mixtures or bags of vectors; see `tacit.fuse`."""
    models = list(models)
    if len(models) < 2:
        raise DataError(f"expected two models or more to fuse, got {len(models)}")
    draw = numpy_generator(seed, "fusion")
    if all(hasattr(model, "covariance_type") for model in models):
        mixture, found = fuse_mixtures(models, draw, counts, _spahm(method))
        return _of_vectors(mixture, found)
    if all(isinstance(model, np.ndarray) for model in models):
        found = _spahm(method).match(models, draw)
        return _of_vectors(found.atoms, found)
    states = [_state(model) for model in models]
    names = tuple(str(model) if isinstance(model, str | Path) else f"model {k}" for k, model in enumerate(models))
    networks = [Dense.of(state, name) for state, name in zip(states, names, strict=True)]
    check_networks(networks, names)
    fused = Fusion.build(method).fuse(networks, draw, counts=_counts(counts, networks))
    first = models[0]
    made = fused.network.module(first) if isinstance(first, nn.Module) else fused.network.state(states[0])
    return FusedModel(made, fused.assignment, fused.network.widths, names)


def _spahm(method: str | Mapping[str, Any] | Fusion) -> Spahm:
    """What matches vectors that are no neurons; pfnm is the default for networks."""
    chosen = Fusion.build("spahm" if method == "pfnm" else method)
    if not isinstance(chosen, Spahm):
        raise StudyError(f"{chosen.name} fuses networks; vectors and mixtures are matched by spahm")
    return chosen


def _of_vectors(model: Any, found: Matching) -> FusedModel:
    names = tuple(f"model {k}" for k in range(len(found.places)))
    return FusedModel(model, (found.places,), (len(found.atoms),), names)


def _state(model: Any) -> Mapping[str, Tensor]:
    if isinstance(model, nn.Module):
        return model.state_dict()
    if isinstance(model, str | Path):
        return read_state(Path(model).expanduser())
    if isinstance(model, Mapping) and all(isinstance(value, Tensor) for value in model.values()):
        return model
    what = "modules, dicts of tensors, files, fitted GaussianMixtures or matrices of vectors"
    raise DataError(f"expected models of one kind, {what}; got {type(model).__name__}")


def _counts(given: Any, networks: Sequence[Dense]) -> Floats | None:
    if given is None:
        return None
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    wanted = (len(networks), networks[0].outputs)
    if found.shape != wanted or not (np.isfinite(found) & (found >= 0)).all():
        raise DataError(
            f"counts: expected {wanted[0]} rows, a model each, of {wanted[1]} numbers of samples, a class each"
        )
    return found


def _sizes(widths: Sequence[Any]) -> str:
    return " and ".join("/".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in widths)
