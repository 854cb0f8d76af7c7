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
from tacit.federated.fusion.dense import Dense, check_neurons, in_order
from tacit.federated.fusion.fusion import Assignment, Fusion, check_networks
from tacit.federated.fusion.matching import Floats, Matching
from tacit.federated.fusion.mixtures import fuse_mixtures
from tacit.federated.fusion.spahm import Spahm
from tacit.models.weight_files import keeps_order, read_state, write_state
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
    models: Sequence[Any],
    method: str | Mapping[str, Any] | Fusion | None,
    *,
    counts: Any,
    seed: int,
) -> FusedModel:
    """Fuses networks, mixtures or bags of vectors; see `tacit.fuse`."""
    if not isinstance(models, list | tuple):
        raise DataError(f"expected a list of models to fuse, got {type(models).__name__}")
    if len(models) < 2:
        raise DataError(f"expected two models or more to fuse, got {len(models)}")
    draw = numpy_generator(seed, "fusion")
    if all(hasattr(model, "covariance_type") for model in models):
        mixture, found = fuse_mixtures(models, draw, counts, _spahm(method))
        return _of_vectors(mixture, found)
    if all(hasattr(model, "__array__") for model in models):  # NumPy's, torch's, pandas'
        if counts is not None:
            raise StudyError("vectors are matched without counts; leave them out")
        found = _spahm(method).match([_matrix(model) for model in models], draw)
        return _of_vectors(found.atoms, found)
    names = tuple(
        str(model) if isinstance(model, str | Path) else f"model {k}"
        for k, model in enumerate(models)
    )
    states = [_state(*pair) for pair in zip(models, names, strict=True)]
    networks = [Dense.of(state, name) for state, name in zip(states, names, strict=True)]
    check_networks(networks, names)
    for model, network, name in zip(models, networks, names, strict=True):
        if isinstance(model, nn.Module):
            check_neurons(model, (network.inputs,), name)
    chosen = Fusion.build("pfnm" if method is None else method)
    if counts is not None and not chosen.uses_counts:
        raise StudyError(
            f"{chosen.name}, as it is set, makes nothing of counts; leave them out, or see class_weights"
        )
    fused = chosen.fuse(networks, draw, counts=_counts(counts, networks))
    first = models[0]
    made = (
        fused.network.module(first)
        if isinstance(first, nn.Module)
        else fused.network.state(states[0])
    )
    return FusedModel(made, fused.assignment, fused.network.widths, names)


def _spahm(method: str | Mapping[str, Any] | Fusion | None) -> Spahm:
    """What matches vectors that are no neurons."""
    chosen = Fusion.build("spahm" if method is None else method)
    if not isinstance(chosen, Spahm):
        raise StudyError(f"{chosen.name} fuses networks; vectors and mixtures are matched by spahm")
    return chosen


def _of_vectors(model: Any, found: Matching) -> FusedModel:
    names = tuple(f"model {k}" for k in range(len(found.places)))
    return FusedModel(model, (found.places,), (len(found.atoms),), names)


def _matrix(model: Any) -> Floats:
    try:
        return np.asarray(model, np.float64)
    except (TypeError, ValueError):
        raise DataError("expected matrices of numbers") from None


def _state(model: Any, name: str) -> Mapping[str, Tensor]:
    if isinstance(model, nn.Module):
        return model.state_dict()
    if isinstance(model, str | Path):
        path = Path(model).expanduser()
        found = read_state(path)
        return found if keeps_order(path, found) else in_order(found, name)
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
    return " and ".join(
        "/".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in widths
    )
