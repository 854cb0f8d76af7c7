"""Models that were trained apart become one: networks, mixtures or bags of vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from tacit.core.arrays import Floats
from tacit.core.errors import DataError, StudyError
from tacit.core.files import expanded
from tacit.core.seeds import numpy_generator
from tacit.federated.fusion.dense import Dense, check_neurons, in_order
from tacit.federated.fusion.fusion import Assignment, Fusion, check_networks
from tacit.federated.fusion.matching import Matching
from tacit.federated.fusion.mixtures import fuse_mixtures
from tacit.federated.fusion.spahm import Spahm
from tacit.models.weight_files import keeps_order, read_state, write_state

Method = str | Mapping[str, Any] | Fusion | None
KINDS = "modules, dicts of tensors, files, fitted GaussianMixtures or matrices of vectors"


@dataclass(frozen=True, repr=False)
class FusedModels:
    """One model of many, and which of its neurons, components or vectors each client's are.

    `model` is of the kind that was given: a module, a dict of tensors, a mixture or a matrix of
    vectors. `assignment[layer][client]` has the global neuron of each of the client's own.
    """

    model: Any
    assignment: Assignment
    widths: tuple[int, ...]  # of each hidden layer; of vectors, how many there are
    names: tuple[str, ...]  # of the clients

    @property
    def local_widths(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, those of the clients' models."""
        return tuple(tuple(map(len, layer)) for layer in self.assignment)

    @property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, how many global neurons one client has, two have, and so on."""
        layers = []
        for neurons in self.assignment:
            owners = np.bincount(np.concatenate(neurons))
            shares = np.bincount(owners, minlength=len(self.names) + 1)
            layers.append(tuple(shares[1:].tolist()))
        return tuple(layers)

    def save(self, path: str | Path) -> Path:
        """Writes the weights in torch's format or, by the file's name, as safetensors."""
        weights = self.model.state_dict() if isinstance(self.model, nn.Module) else self.model
        if not isinstance(weights, Mapping):
            raise StudyError(f"only networks have weights to save; got {type(self.model).__name__}")
        write_state(Path(path), weights)
        return Path(path)

    def __repr__(self) -> str:
        local = " and ".join("/".join(map(str, widths)) for widths in self.local_widths)
        fused = " and ".join(map(str, self.widths))
        return f"{len(self.names)} models of {local} fused into one of {fused}"


def fuse_models(models: Sequence[Any], method: Method, *, counts: Any, seed: int) -> FusedModels:
    """Fuses networks, mixtures or bags of vectors; see `tacit.fuse`."""
    if not isinstance(models, list | tuple):
        raise DataError(f"expected a list of models to fuse, got {type(models).__name__}")
    if len(models) < 2:
        raise DataError(f"expected two models or more to fuse, got {len(models)}")
    rng = numpy_generator(seed, "fusion")
    if all(hasattr(model, "covariance_type") for model in models):
        mixture, matching = fuse_mixtures(models, rng, counts, _choose_spahm(method))
        return _fused_vectors(mixture, matching)
    if all(hasattr(model, "__array__") for model in models):  # NumPy's, torch's, pandas'
        if counts is not None:
            raise StudyError("vectors are matched without counts; leave them out")
        matching = _choose_spahm(method).match([_matrix(model) for model in models], rng)
        return _fused_vectors(matching.atoms, matching)
    return _fuse_networks(models, method, counts, rng)


def _fuse_networks(
    models: Sequence[Any], method: Method, counts: Any, rng: np.random.Generator
) -> FusedModels:
    names = tuple(_model_name(model, number) for number, model in enumerate(models))
    weights = [_read_weights(model, name) for model, name in zip(models, names, strict=True)]
    networks = [Dense.of(*pair) for pair in zip(weights, names, strict=True)]
    check_networks(networks, names)
    for model, network, name in zip(models, networks, names, strict=True):
        if isinstance(model, nn.Module):
            check_neurons(model, (network.inputs,), name)
    fusion = Fusion.build("pfnm" if method is None else method)
    if counts is not None and not fusion.uses_counts:
        advice = "leave them out, or see class_weights"
        raise StudyError(f"{fusion.name} with these settings does not use counts; {advice}")
    fused = fusion.fuse(networks, rng, counts=_check_counts(counts, networks))
    if isinstance(models[0], nn.Module):
        fused_model: Any = fused.network.module(models[0])
    else:
        fused_model = fused.network.state(weights[0])
    return FusedModels(fused_model, fused.assignment, fused.network.widths, names)


def _fused_vectors(model: Any, matching: Matching) -> FusedModels:
    names = tuple(f"model {number}" for number in range(len(matching.places)))
    return FusedModels(model, (matching.places,), (len(matching.atoms),), names)


def _choose_spahm(method: Method) -> Spahm:
    """What matches vectors that are no neurons."""
    fusion = Fusion.build("spahm" if method is None else method)
    if not isinstance(fusion, Spahm):
        advice = "vectors and mixtures are matched by spahm"
        raise StudyError(f"{fusion.name} fuses networks; {advice}")
    return fusion


def _model_name(model: Any, number: int) -> str:
    return str(model) if isinstance(model, str | Path) else f"model {number}"


def _matrix(model: Any) -> Floats:
    try:
        return np.asarray(model, np.float64)
    except (TypeError, ValueError):
        raise DataError("expected matrices of numbers") from None


def _read_weights(model: Any, name: str) -> Mapping[str, Tensor]:
    """A network's weights by name, in the order of its layers."""
    if isinstance(model, nn.Module):
        return model.state_dict()
    if isinstance(model, str | Path):
        path = expanded(model)
        weights = read_state(path)
        return weights if keeps_order(path, weights) else in_order(weights, name)
    if isinstance(model, Mapping) and all(isinstance(value, Tensor) for value in model.values()):
        return model
    raise DataError(f"expected models of one kind, {KINDS}; got {type(model).__name__}")


def _check_counts(counts: Any, networks: Sequence[Dense]) -> Floats | None:
    """The samples that each model saw of each class, as a matrix."""
    if counts is None:
        return None
    try:
        matrix = np.asarray(counts, np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    rows = len(networks)
    classes = networks[0].outputs
    is_sound = matrix.shape == (rows, classes) and np.isfinite(matrix).all() and (matrix >= 0).all()
    if not is_sound:
        raise DataError(
            f"counts: expected the numbers of samples, {rows} rows (one per model) of {classes}"
            " (one per class)"
        )
    return matrix
