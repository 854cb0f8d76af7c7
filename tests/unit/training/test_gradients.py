from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.vectors import Layout
from tacit.training.batches import Batch
from tacit.training.channels import convolution_weights, store_channels_last
from tacit.training.evaluation import evaluate
from tacit.training.gradients import Gradients, row_gradients

NONE = torch.zeros(0, dtype=torch.int64)  # seeds and steps, which these gradients do not look at


class Forgetful(nn.Linear):
    """Clears its gradients as it runs."""

    def forward(self, input: Tensor) -> Tensor:
        self.zero_grad()
        return super().forward(input)


class Idle(nn.Linear):
    """Has a parameter that it does not use."""

    def __init__(self) -> None:
        super().__init__(192, 4)
        self.spare = nn.Parameter(torch.ones(3))


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(80, 4))
    module[0].requires_grad_(False)
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.ReLU(), nn.Linear(7, 4)),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 5, 2),
        nn.Flatten(),
        nn.Linear(20, 4),
    ),
    "one by one": lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.Flatten(), nn.Linear(384, 4)),
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(216, 4)
    ),
    "group norm": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(216, 4)
    ),
    "forgetful": lambda: nn.Sequential(nn.Flatten(), Forgetful(192, 4)),
    "idle": lambda: nn.Sequential(nn.Flatten(), Idle()),
    "frozen": frozen,
}


def make_module(name: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name]().to(dtype)


def batch(dtype: torch.dtype, rows: int = 2, size: int = 6) -> Batch:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(rows, size, 3, 8, 8, generator=draw, dtype=dtype)
    return Batch(x, torch.randint(0, 4, (rows, size), generator=draw), (size,) * rows)


def rows_of(module: nn.Module, count: int = 2) -> tuple[Tensor, dict[str, Tensor]]:
    layout = Layout.of(module)
    row = layout.flatten(module)
    w = torch.stack([row * (1 + k / 10) for k in range(count)])
    buffers = {}
    for name, value in layout.copy_buffers(module).items():
        buffers[name] = torch.stack([value] * count)
    return w, buffers


def gradients_of(
    module: nn.Module, w: Tensor, buffers: dict[str, Tensor], data: Batch
) -> Gradients:
    return row_gradients(module)(w, buffers, data, NONE, NONE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(MODULES))
def test_a_rows_gradient_is_that_of_the_module_with_its_parameters(
    name: str, dtype: torch.dtype
) -> None:
    module = make_module(name, dtype)
    data = batch(dtype)
    w, buffers = rows_of(module)
    gradients = gradients_of(module, w, buffers, data)
    layout = Layout.of(module)
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    for k in range(2):
        layout.load(module, w[k], {name: value[k] for name, value in buffers.items()})
        loss = functional.cross_entropy(module.train()(data.x[k]), data.y[k])
        slopes = torch.autograd.grad(loss, layout.parameters(module), materialize_grads=True)
        g = torch.cat([slope.reshape(-1) for slope in slopes])
        torch.testing.assert_close(gradients.g[k], g, rtol=1e-4, atol=atol)
        torch.testing.assert_close(gradients.loss[k, 0], loss.detach())


@pytest.mark.parametrize("name", list(MODULES))
def test_a_row_has_the_same_bits_alone_and_in_company(name: str) -> None:
    module = make_module(name, torch.float32)
    data = batch(torch.float32)
    w, buffers = rows_of(module)
    together = gradients_of(module, w, buffers, data)
    for k in range(2):
        row = slice(k, k + 1)
        row_data = Batch(data.x[row], data.y[row], data.counts[:1])
        row_buffers = {name: value[row] for name, value in buffers.items()}
        alone = gradients_of(module, w[row], row_buffers, row_data)
        assert torch.equal(alone.g, together.g[row])


@pytest.mark.parametrize("name", list(MODULES))
def test_the_next_step_changes_nothing_that_an_earlier_one_gave_or_took(name: str) -> None:
    module = make_module(name, torch.float32)
    data = batch(torch.float32, rows=1)
    gradient = row_gradients(module)
    w, buffers = rows_of(module, 1)
    first = gradient(w, buffers, data, NONE, NONE)
    held = [w, *buffers.values(), first.g, first.loss, first.hits, *first.buffers.values()]
    copies = [value.clone() for value in held]
    gradient(w - first.g, first.buffers, data, NONE, NONE)
    assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))


def test_the_module_that_was_given_keeps_its_memory_format_and_its_gradients() -> None:
    module = make_module("convolutions", torch.float32)
    strides = [p.stride() for p in module.parameters()]
    w, buffers = rows_of(module, 1)
    gradients_of(module, w, buffers, batch(torch.float32, rows=1))
    assert [p.stride() for p in module.parameters()] == strides
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("name", ["convolutions", "one by one", "batch norm", "frozen"])
def test_weights_are_stored_channels_last_with_the_same_values(name: str) -> None:
    module = make_module(name, torch.float32)
    before = [parameter.clone() for parameter in module.parameters()]
    weights = store_channels_last(module)
    assert len(weights) == sum(isinstance(layer, nn.Conv2d) for layer in module.modules())
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    assert all(map(torch.equal, module.parameters(), before))


def test_weights_are_stored_anew_only_once() -> None:
    module = make_module("convolutions", torch.float32)
    addresses = [weight.data_ptr() for weight in store_channels_last(module)]
    assert [weight.data_ptr() for weight in store_channels_last(module)] == addresses


def test_a_model_with_group_norm_is_left_as_it_is() -> None:
    assert convolution_weights(make_module("group norm", torch.float32)) == []


@pytest.mark.parametrize("name", list(MODULES))
def test_a_model_is_as_good_with_channels_last(name: str) -> None:
    module = make_module(name, torch.float32)
    plain = make_module(name, torch.float32)
    data = batch(torch.float32)
    x, y = data.row(0)
    answers = evaluate(module, x, y)
    output = plain.eval()(x)
    expected = functional.cross_entropy(output, y, reduction="none").detach()
    torch.testing.assert_close(answers.losses, expected)
    assert torch.equal(answers.hits(y), output.argmax(1) == y)
