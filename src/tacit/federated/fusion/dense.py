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

from tacit.core.arrays import Floats
from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Places

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
        arrays = {key: _array(value) for key, value in state.items()}
        weights = {layer: arrays[f"{layer}weight"] for layer in _layers(state)}
        biases = {}
        for layer, weight in weights.items():
            no_bias = np.zeros(len(weight))
            biases[layer] = arrays.get(f"{layer}bias", no_bias)
        _check_names(name, arrays, weights)
        _check_numbers(name, weights, biases)
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
        """The network of some neurons: for each hidden layer, their indices."""
        rows = [*places, np.arange(self.outputs)]
        columns = [np.arange(self.inputs), *places]
        weights = []
        biases = []
        layers = zip(self.weights, self.biases, rows, columns, strict=True)
        for weight, bias, row, column in layers:
            weights.append(weight[np.ix_(row, column)])
            biases.append(bias[row])
        return Dense(tuple(weights), tuple(biases))

    def state(self, like: State) -> dict[str, Tensor]:
        """As a state dict with the names and the number type of another network as deep as this."""
        tensors: dict[str, Tensor] = {}
        for layer, weight, bias in zip(_layers(like), self.weights, self.biases, strict=True):
            model = like[f"{layer}weight"]
            tensors[f"{layer}weight"] = _tensor(weight, model)
            tensors[f"{layer}bias"] = _tensor(bias, model)
        return {key: tensors[key] for key in like}

    def module(self, like: nn.Module) -> nn.Module:
        """As a copy of another module, with layers of this network's widths."""
        state = self.state(like.state_dict())
        module = copy.deepcopy(like)
        for name, layer in list(module.named_modules()):
            if isinstance(layer, nn.Linear):
                layer.weight = nn.Parameter(state[f"{name}.weight"])
                if layer.bias is not None:
                    layer.bias = nn.Parameter(state[f"{name}.bias"])
                layer.out_features, layer.in_features = layer.weight.shape
        return module


def check_neurons(module: nn.Module, shape: Sequence[int], name: str = "the model") -> None:
    """Refuses a module whose neurons are more than their weights.

    It tries, on some samples, a change that must not matter: every neuron comes twice, with half of
    its outgoing weights, and all are shuffled.
    """
    network = Dense.of(module.state_dict(), name)
    rng = np.random.default_rng(0)
    doubled = _doubled(network, rng)
    x = torch.from_numpy(rng.normal(size=(2, *shape)))
    x = x.to(next(module.parameters()))
    try:
        with torch.no_grad():
            answers = doubled.module(module).eval()(x)
            expected = copy.deepcopy(module).eval()(x)
            unchanged = torch.allclose(answers, expected, rtol=1e-3, atol=1e-4)
    except (RuntimeError, ValueError, TypeError):  # of a forward pass that knows its widths
        unchanged = False
    if not unchanged:
        raise DataError(
            f"{name} is not just dense layers one after another: with its neurons doubled and"
            " shuffled it no longer computes the same; skip connections, shared weights and layers"
            " across neurons cannot be matched"
        )


def in_order(state: State, name: str = "the model") -> dict[str, Tensor]:
    """A state dict whose order is lost, with its layers in the only order in which they fit."""
    weights = {layer: state[f"{layer}weight"] for layer in _layers(state)}
    orders = _two_orders(weights)
    if len(orders) != 1:
        number = "more than one order" if orders else "no order that could be found"
        raise DataError(
            f"{name}: its layers fit in {number}, and safetensors keep none: {_shapes(weights)};"
            " number their names, or use torch.save"
        )
    ordered: dict[str, Tensor] = {}
    for layer in orders[0]:
        ordered |= {key: value for key, value in state.items() if key.startswith(layer)}
    return ordered | dict(state)


def _check_names(name: str, arrays: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Refuses arrays that belong to no dense layer, and a network without a hidden layer."""
    weight_names = [f"{layer}weight" for layer in weights]
    bias_names = [f"{layer}bias" for layer in weights]
    strange = [key for key in arrays if key not in weight_names + bias_names]
    strange += [key for key in weight_names if arrays[key].ndim != 2]
    if strange:
        raise DataError(
            f"{name}: neurons are matched only in dense layers, and {strange[0]} belongs to none"
        )
    if len(weights) < 2:
        raise DataError(f"{name}: expected at least one hidden layer, whose neurons can be matched")


def _check_numbers(name: str, weights: Mapping[str, Any], biases: Mapping[str, Any]) -> None:
    """Refuses arrays that do not fit together, and weights that are NaN or infinite."""
    for layer, weight in weights.items():
        if biases[layer].shape != weight.shape[:1]:
            raise DataError(f"{name}: expected {len(weight)} numbers in {layer}bias")
    arrays = [*weights.values(), *biases.values()]
    if not all(np.isfinite(array).all() for array in arrays):
        raise DataError(f"{name}: some of its weights are not finite numbers")
    if not _fit(list(weights.values())):
        raise DataError(
            f"{name}: its layers do not fit one after another as they stand: {_shapes(weights)}"
        )


def _doubled(network: Dense, rng: np.random.Generator) -> Dense:
    """The network with every neuron twice, at half of its outgoing weights, and shuffled."""
    twice = [np.repeat(np.arange(width), 2) for width in network.widths]
    doubled = network.part([rng.permutation(neurons) for neurons in twice])
    halves = [weight / 2 for weight in doubled.weights[1:]]
    return Dense((doubled.weights[0], *halves), doubled.biases)


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().double().cpu().numpy()
    return array


def _tensor(array: Floats, like: Tensor) -> Tensor:
    """Of that tensor's type and device, in one piece of memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(like)


def _layers(state: State) -> list[str]:
    """The names of the layers, up to the last dot."""
    return [key.removesuffix("weight") for key in state if key.endswith("weight")]


def _two_orders(weights: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The orders in which layers fit: at most two, and none where there are too many to try."""
    orders: list[tuple[str, ...]] = []
    if len(weights) > SHORT:
        return orders
    for order in itertools.permutations(weights):
        if _fit([weights[layer] for layer in order]):
            orders.append(order)
        if len(orders) == 2:
            break
    return orders


def _fit(weights: Sequence[Any]) -> bool:
    """Whether each layer has as many inputs as the one before has outputs."""
    if any(weight.ndim != 2 for weight in weights):
        return False
    pairs = itertools.pairwise(weights)
    return all(len(before) == after.shape[1] for before, after in pairs)


def _shapes(weights: Mapping[str, Any]) -> str:
    return ", ".join(f"{layer}weight {tuple(value.shape)}" for layer, value in weights.items())
