"""A run with a fusion on its way: the clients' states, their networks, and the fused one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Fused
from tacit.models.model import Model
from tacit.simulation.state import RunProgress, RunState
from tacit.study.kinds.fusion import FusionRun

SAVED = ("round", "status", "best", "stale")


@dataclass(eq=False)
class FusionState(RunProgress):
    """One run: a state for each kind of network that its clients train, and the fused network."""

    run: FusionRun
    by_model: dict[Model, RunState] = field(default_factory=dict)
    networks: list[Dense] = field(default_factory=list)  # as the clients trained them last
    fused: Fused | None = None

    @property
    def first(self) -> RunState:
        """One of the states; all of them have every client's samples."""
        return next(iter(self.by_model.values()))

    def state_of(self, client: int) -> RunState:
        """The state of the clients that train the same kind of network as this one."""
        return self.by_model[self.run.model_of(client)]

    def clients_with(self, model: Model) -> list[int]:
        """The clients that train this kind of network."""
        clients = range(self.run.clients)
        return [client for client in clients if self.run.model_of(client) == model]

    def end_round(self) -> None:
        """Tells the states how far the run has come."""
        for state in self.by_model.values():
            state.round = self.round
            state.status = self.status
            state.seconds = 0.0

    def saved(self, *, portable: bool) -> dict[str, Any]:
        """What a checkpoint keeps."""
        arrays: Sequence[Any] = ()
        assignment: Sequence[Any] = ()
        if self.fused is not None:
            network = self.fused.network
            arrays = (*network.weights, *network.biases)
            assignment = self.fused.assignment
        saved: dict[str, Any] = {name: getattr(self, name) for name in SAVED}
        saved["network"] = [torch.from_numpy(array) for array in arrays]
        saved["assignment"] = convert_neurons(assignment, torch.from_numpy)
        saved["parts"] = [state.saved(portable=portable) for state in self.by_model.values()]
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        for name in SAVED:
            setattr(self, name, saved[name])
        states = self.by_model.values()
        for state, saved_state in zip(states, saved["parts"], strict=True):
            state.restore(saved_state)
        if not saved["network"]:
            return
        arrays = tuple(tensor.numpy() for tensor in saved["network"])
        half = len(arrays) // 2
        network = Dense(weights=arrays[:half], biases=arrays[half:])
        layers = convert_neurons(saved["assignment"], lambda tensor: tensor.numpy())
        self.fused = Fused(network, tuple(tuple(layer) for layer in layers))


def convert_neurons(
    assignment: Sequence[Sequence[Any]], convert: Callable[[Any], Any]
) -> list[list[Any]]:
    """Each layer's list of the clients' neurons, in another type."""
    return [[convert(neurons) for neurons in layer] for layer in assignment]
