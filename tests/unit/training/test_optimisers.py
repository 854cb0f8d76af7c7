from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns
from tacit.training.optimisers import SGD, Adam, Optimiser, lean_update
from tacit.training.schedules import StepDecay

TWINS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adam": (torch.optim.Adam, {}),
}


def test_every_optimiser_has_a_torch_twin() -> None:
    assert set(TWINS) == set(Optimiser.known())


@pytest.mark.parametrize("name", list(TWINS))
@pytest.mark.parametrize("decay", [None, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_its_torch_twin_over_two_hundred_steps(
    name: str, decay: float | None, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(3, 40, generator=draw, dtype=dtype)
    rates = [0.01, 0.003, 0.02]
    objects = [Optimiser.build({"name": name, "lr": lr, "weight_decay": decay}) for lr in rates]
    ours = columns(objects, type(objects[0]), start)
    twin, settings = TWINS[name]
    rows = [row.clone().requires_grad_() for row in start]
    twins = [
        twin([row], lr=lr, weight_decay=decay or 0.0, **settings)
        for row, lr in zip(rows, rates, strict=True)
    ]
    w, state = start, ours.init(start)
    for _ in range(200):
        direction = torch.randn(3, 40, generator=draw, dtype=dtype)
        exponent = 2 * torch.rand(1, generator=draw, dtype=dtype) - 1
        g = direction * 10**exponent
        w, state = ours.update(w, g, state)
        for k, (row, optimiser) in enumerate(zip(rows, twins, strict=True)):
            row.grad = g[k].clone()
            optimiser.step()
    limit = 1e-6
    if dtype == torch.float32:
        limit *= max(1, w.abs().max().item())
    torch_rows = torch.stack([row.detach() for row in rows])
    assert (w - torch_rows).abs().max() <= limit


@pytest.mark.parametrize("name", list(TWINS))
def test_update_changes_none_of_its_inputs(name: str) -> None:
    draw = torch.Generator().manual_seed(1)
    w = torch.randn(2, 5, generator=draw)
    g = torch.randn(2, 5, generator=draw)
    rule = columns([Optimiser.build(name)] * 2, Optimiser.find(name), w)
    _, state = rule.update(w, g, rule.init(w))
    inputs = [w, g, *state.values()]
    copies = [value.clone() for value in inputs]
    rule.update(w, g, state)
    assert all(map(torch.equal, inputs, copies))


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(StudyError, match=r"adam.lr: expected a number above 0, got 0.0"):
        Optimiser.build({"name": "adam", "lr": 0})


def test_step_decay_equals_torch_step_lr() -> None:
    parameter = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([parameter], lr=0.5)
    twin = torch.optim.lr_scheduler.StepLR(optimiser, step_size=3, gamma=0.7)
    for round in range(20):
        assert 0.5 * StepDecay(0.7, 3).factor_at(round) == pytest.approx(twin.get_last_lr()[0])
        optimiser.step()
        twin.step()


LEAN = [name for name in TWINS if type(Optimiser.build(name)).lean is not Optimiser.lean]


Walk = tuple[list[Optimiser], Tensor, Tensor]


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    """Rows of one rule with settings of their own, their start, and the gradients of some steps."""
    name = draw(st.sampled_from(LEAN))
    rows = draw(st.integers(1, 3))
    decay = draw(st.sampled_from([None, 0.0, 0.1]))
    seed = draw(st.integers(0, 2**31))
    rates = draw(st.lists(st.floats(1e-5, 1), min_size=rows, max_size=rows))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(seed)
    size = draw(st.integers(1, 70))
    steps = draw(st.integers(1, 12))
    scale = 10 ** draw(st.floats(-3, 3))
    start = torch.randn(rows, size, generator=generator, dtype=dtype)
    objects = [Optimiser.build({"name": name, "lr": lr, "weight_decay": decay}) for lr in rates]
    gradients = torch.randn(steps, rows, size, generator=generator, dtype=dtype) * scale
    return objects, start, gradients


@given(walks())
def test_the_lean_form_equals_the_rule_up_to_rounding(walk: Walk) -> None:
    objects, start, gradients = walk
    rule = columns(objects, type(objects[0]), start)
    update = lean_update(rule, start)
    assert update != rule.update
    w = lean_w = start
    state = lean_state = rule.init(start)
    for g in gradients:
        w, state = rule.update(w, g, state)
        lean_w, lean_state = update(lean_w, g, lean_state)
    scale = max(1.0, w.abs().max().item())
    digits = 2e-4 if start.dtype == torch.float32 else 1e-10
    assert (w - lean_w).abs().max() <= digits * scale  # a step's size is the rate, 1 at most
    assert lean_state.keys() == state.keys()
    atol = 1e-5 * gradients.abs().max().item() ** 2 + 1e-6
    for name, value in lean_state.items():
        torch.testing.assert_close(value, state[name], rtol=1e-3, atol=atol)


@given(walks())
def test_a_row_steps_to_the_same_bits_alone_and_in_company(walk: Walk) -> None:
    objects, start, gradients = walk
    together = columns(objects, type(objects[0]), start)
    w, state = start, together.init(start)
    update = lean_update(together, start)
    for g in gradients:
        w, state = update(w, g, state)
    for k, optimiser in enumerate(objects):
        row = slice(k, k + 1)
        rule = columns([optimiser], type(optimiser), start)
        row_w = start[row]
        row_state = rule.init(row_w)
        row_update = lean_update(rule, row_w)
        for g in gradients:
            row_w, row_state = row_update(row_w, g[row], row_state)
        assert torch.equal(row_w, w[row])
        for name, value in row_state.items():
            assert torch.equal(value, state[name][row])


@given(walks())
def test_the_lean_form_changes_none_of_its_inputs(walk: Walk) -> None:
    objects, w, gradients = walk
    rule = columns(objects, type(objects[0]), w)
    update = lean_update(rule, w)
    g = gradients[0]
    _, state = update(w, g, rule.init(w))
    inputs = [w, g, *state.values()]
    copies = [value.clone() for value in inputs]
    update(w, g, state)
    assert all(map(torch.equal, inputs, copies))


def test_a_rule_without_a_lean_form_steps_as_it_is() -> None:
    w = torch.ones(2, 3)
    rule = columns([Optimiser.build("adadelta")] * 2, Optimiser.find("adadelta"), w)
    assert lean_update(rule, w) == rule.update


def test_elsewhere_than_on_a_cpu_the_rule_steps_as_it_is() -> None:
    w = torch.ones(2, 3, device="meta")
    rule = columns([Optimiser.build("adam")] * 2, Optimiser.find("adam"), w)
    assert lean_update(rule, w) == rule.update


@dataclass(frozen=True)
class SignSGD(SGD):
    """Overrides the step alone."""

    def step(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        return w - self.lr * g.sign(), state


@dataclass(frozen=True)
class Decoupled(Adam):
    """Overrides the update alone."""

    def update(self, w: Tensor, g: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        w_after, state_after = super().update(w, g, state)
        return w_after - 0.1 * w, state_after


@pytest.mark.parametrize("rule", [SignSGD(lr=0.1), Decoupled(lr=0.1)])
def test_a_rule_that_overrides_part_of_another_is_not_replaced_by_that_ones_lean_form(
    rule: Optimiser,
) -> None:
    w, g = torch.ones(1, 3), torch.tensor([[3.0, -1.0, 0.5]])
    row_rule: Any = columns([rule], type(rule), w)
    state = row_rule.init(w)
    lean_w, _ = lean_update(row_rule, w)(w, g, state)
    assert torch.equal(lean_w, row_rule.update(w, g, state)[0])


def test_a_gradient_in_any_order_of_memory_is_read_rightly() -> None:
    w = torch.zeros(1, 4)
    matrix = torch.tensor([[1.0, 9.0], [-1.0, 9.0], [1.0, 9.0], [-1.0, 9.0]])
    g = matrix[:, 0][None]  # every second number in memory
    rule: Any = columns([Adam(lr=0.1)], Adam, w)
    state = rule.init(w)
    lean_w, _ = lean_update(rule, w)(w, g, state)
    assert torch.allclose(lean_w, rule.update(w, g, state)[0])
