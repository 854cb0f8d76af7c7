"""Fully connected networks as arrays, whatever their widths, and back."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Floats, Places

State = Mapping[str, Tensor]  # as torch saves models
SHORT = 7  # layers whose order can be found by trying


@dataclass(frozen=True)
class Dense:
    """The layers' weights, (out, in), and biases, (out,), from the inputs to the outputs."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    @classmethod
    def of(cls, state: State, name: str = "the model") -> Dense:
        """Reads a state dict that holds dense layers in their order."""
        arrays = {key: value.detach().double().cpu().numpy() for key, value in state.items()}
        weights = {key: arrays[f"{key}weight"] for key in _layers(state)}
        biases = {
            key: arrays.get(f"{key}bias", np.zeros(len(value))) for key, value in weights.items()
        }
        layers = {f"{key}{part}" for key in weights for part in ("weight", "bias")}
        flat = [f"{key}weight" for key, value in weights.items() if value.ndim != 2]
        if odd := [key for key in arrays if key not in layers] or flat:
            raise DataError(
                f"{name}: neurons are matched in dense layers alone, and {odd[0]} belongs to none"
            )
        if len(weights) < 2:
            raise DataError(
                f"{name}: expected a hidden layer at least, whose neurons can be matched"
            )
        if wrong := [key for key, bias in biases.items() if bias.shape != weights[key].shape[:1]]:
            raise DataError(f"{name}: expected {len(weights[wrong[0]])} numbers in {wrong[0]}bias")
        if not all(np.isfinite(value).all() for value in arrays.values()):
            raise DataError(f"{name}: some of its weights are no finite numbers")
        if not _fit(list(weights.values())):
            raise DataError(
                f"{name}: its layers do not fit one after another as they stand: {_shapes(weights)}"
            )
        return cls(tuple(weights.values()), tuple(biases.values()))

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the hidden layers."""
        return tuple(len(weight) for weight in self.weights[:-1])

    @property
    def inputs(self) -> int:
        return int(self.weights[0].shape[1])

    @property
    def outputs(self) -> int:
        return len(self.weights[-1])

    def part(self, places: Sequence[Places]) -> Dense:
        """The network of some neurons, given for each hidden layer."""
        rows = [*places, np.arange(self.outputs)]
        columns = [np.arange(self.inputs), *places]
        pairs = zip(self.weights, rows, columns, strict=True)
        weights = tuple(weight[np.ix_(row, column)] for weight, row, column in pairs)
        return Dense(weights, tuple(bias[row] for bias, row in zip(self.biases, rows, strict=True)))

    def state(self, like: State) -> dict[str, Tensor]:
        """As a state dict with the names, and the type of number, of another network of as many layers."""
        found: dict[str, Tensor] = {}
        for key, *pair in zip(_layers(like), self.weights, self.biases, strict=True):
            for name, value in zip(("weight", "bias"), pair, strict=True):
                found[f"{key}{name}"] = torch.from_numpy(np.ascontiguousarray(value)).to(
                    like[f"{key}weight"]
                )
        return {key: found[key] for key in like}

    def module(self, like: nn.Module) -> nn.Module:
        """As a copy of another module, with layers of this network's widths."""
        state, made = self.state(like.state_dict()), copy.deepcopy(like)
        for name, part in list(made.named_modules()):
            if isinstance(part, nn.Linear):
                part.weight = nn.Parameter(state[f"{name}.weight"])
                part.bias = nn.Parameter(state[f"{name}.bias"]) if part.bias is not None else None
                part.out_features, part.in_features = part.weight.shape
        return made


def check_neurons(module: nn.Module, shape: Sequence[int], name: str = "the model") -> None:
    """Refuses a module whose neurons are more than their weights: it tries what must not matter, on some samples.

    Every neuron comes twice, with half of its outgoing weights, and all are shuffled.
    """
    network, draw = Dense.of(module.state_dict(), name), np.random.default_rng(0)
    twice = network.part(
        [draw.permutation(np.repeat(np.arange(width), 2)) for width in network.widths]
    )
    halves = (twice.weights[0], *(weight / 2 for weight in twice.weights[1:]))
    x = torch.from_numpy(draw.normal(size=(2, *shape))).to(next(module.parameters()))
    try:
        with torch.no_grad():
            found = Dense(halves, twice.biases).module(module).eval()(x)
            same = torch.allclose(found, copy.deepcopy(module).eval()(x), rtol=1e-3, atol=1e-4)
    except (RuntimeError, ValueError, TypeError):  # of a forward pass that knows its widths
        same = False
    if not same:
        raise DataError(
            f"{name} is more than dense layers one after another: with its neurons doubled and shuffled it no longer"
            " computes the same; skip connections, shared weights and layers across neurons cannot be matched"
        )


def in_order(state: State, name: str = "the model") -> dict[str, Tensor]:
    """A state dict whose order is lost, with its layers in the only order in which their shapes fit."""
    weights = {key: state[f"{key}weight"] for key in _layers(state)}
    fit = (
        order for order in itertools.permutations(weights) if _fit([weights[key] for key in order])
    )
    found = list(itertools.islice(fit, 2)) if len(weights) <= SHORT else []
    if len(found) != 1:
        what = "more than one order" if found else "no order that could be found"
        raise DataError(
            f"{name}: its layers fit in {what}, and safetensors keep none: {_shapes(weights)}; number their names, or"
            " use torch.save"
        )
    return {
        key: value for layer in found[0] for key, value in state.items() if key.startswith(layer)
    } | dict(state)


def _layers(state: State) -> list[str]:
    """The names of the layers, up to the last dot."""
    return [key.removesuffix("weight") for key in state if key.endswith("weight")]


def _fit(weights: Sequence[Any]) -> bool:
    flat = all(value.ndim == 2 for value in weights)
    return flat and all(
        len(before) == after.shape[1] for before, after in itertools.pairwise(weights)
    )


def _shapes(weights: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}weight {tuple(value.shape)}" for key, value in weights.items())
