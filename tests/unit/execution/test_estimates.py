from __future__ import annotations

from typing import Any

import pytest
import torch
from playground import FAST

import tacit
from tacit.data.dataset import Dataset
from tacit.data.datasets import Source
from tacit.execution.estimates import PASSES, RATE, STEP, measure_model
from tacit.execution.plan import Block
from tacit.models.model import Model


def test_a_models_numbers_are_counted() -> None:
    """The CNN on 3 x 32 x 32, by hand.

    Each convolution gives channels x side^2 outputs, each a sum of (inputs x 25) products.
    """
    x = torch.rand(2, 3, 32, 32)
    y = torch.tensor([0, 0])
    pictures = Dataset("noise", x, y, x, y, ("a",))
    cost = measure_model(Model.build("cnn").make((3, 32, 32), 10), pictures)
    assert cost.parameters == 62_006
    products = 6 * 28**2 * 75 + 16 * 10**2 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    assert cost.operations == 2 * products
    first = 2 * 6 * 28**2 + 6 * 14**2  # convolution and ReLU, pooling
    second = 2 * 16 * 10**2 + 16 * 5**2
    dense = 400 + 2 * (120 + 84) + 10
    assert cost.activations == first + second + dense


def test_what_costs_memory_costs_it_in_the_estimate() -> None:
    def block(**changed: Any) -> Block:
        return tacit.plan({**FAST, "model": "mlp", **changed}).blocks[0]

    plain = block()
    assert block(model={"name": "mlp", "hidden": [256]}).bytes > plain.bytes
    assert block(optimiser="adam").bytes > plain.bytes
    assert block(batch_size=None).bytes > plain.bytes
    assert block(algorithm="scaffold").bytes > plain.bytes
    assert block(split="feature_noise").bytes > plain.bytes


def test_more_epochs_cost_more_passes_over_every_sample() -> None:
    def seconds(epochs: int) -> float:
        whole = {"model": "mlp", "local_test": 0.0, "batch_size": None, "local_epochs": epochs}
        return tacit.plan({**FAST, **whole}).blocks[0].seconds

    data = Source.build("iris").load()
    module = Model.build("mlp").make(data.x.shape[1:], data.outputs)
    operations = measure_model(module, data).operations
    steps = 10 * 3  # one more for each of ten epochs and three clients
    passes = PASSES * 10 * len(data.x) * operations
    rounds = 2
    assert seconds(11) - seconds(1) == pytest.approx(rounds * (STEP * steps + passes / RATE))
