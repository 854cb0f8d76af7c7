"""Fully connected networks as arrays, whatever their widths, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.core.errors import DataError
from tacit.federated.fusion.matching import Floats, Places

State = Mapping[str, Tensor]  # as torch saves models


@dataclass(frozen=True)
class Dense:
    """The layers' weights, (out, in), and biases, (out,), from the inputs to the outputs."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    @classmethod
    def of(cls, state: State, name: str = "the model") -> Dense:
        """Reads a state dict that holds dense layers, each with a bias, in their order."""
        arrays = {key: value.detach().double().cpu().numpy() for key, value in state.items()}
        weights = {key.removesuffix("weight"): value for key, value in arrays.items() if key.endswith("weight")}
        biases = [arrays.get(f"{key}bias", np.zeros(0)) for key in weights]
        layers = {f"{key}{name}" for key in weights for name in ("weight", "bias")}
        if odd := [key for key in arrays if key not in layers] or [
            f"{key}weight" for key, value in weights.items() if value.ndim != 2
        ]:
            raise DataError(f"{name}: neurons are matched in dense layers alone, and {odd[0]} belongs to none")
        if len(weights) < 2:
            raise DataError(f"{name}: expected a hidden layer at least, whose neurons can be matched")
        for (key, value), bias in zip(weights.items(), biases, strict=True):
            if bias.shape != value.shape[:1]:
                raise DataError(f"{name}: expected {key}bias with {len(value)} numbers beside {key}weight")
        found = cls(tuple(weights.values()), tuple(biases))
        for (key, value), before in zip(list(weights.items())[1:], found.widths, strict=True):
            if value.shape[1] != before:
                raise DataError(
                    f"{name}: {key}weight takes {value.shape[1]} numbers, and the layer before has {before}"
                )
        if not all(np.isfinite(value).all() for value in (*found.weights, *found.biases)):
            raise DataError(f"{name}: some of its weights are no finite numbers")
        return found

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
        parts = iter(zip(self.weights, self.biases, strict=True))
        found: dict[str, Tensor] = {}
        for key in (key.removesuffix("weight") for key in like if key.endswith("weight")):
            for name, value in zip(("weight", "bias"), next(parts), strict=True):
                found[f"{key}{name}"] = torch.from_numpy(value).to(like[f"{key}weight"])
        return {key: found[key] for key in like}

    def module(self, like: nn.Module) -> nn.Module:
        """As a copy of another module, with layers of this network's widths."""
        state, made = self.state(like.state_dict()), copy.deepcopy(like)
        for name, part in list(made.named_modules()):
            if isinstance(part, nn.Linear):
                weight = state[f"{name}.weight"]
                part.weight, part.bias = nn.Parameter(weight), nn.Parameter(state[f"{name}.bias"])
                part.out_features, part.in_features = weight.shape
        return made
