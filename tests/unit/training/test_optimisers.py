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
        g = torch.randn(3, 40, generator=draw, dtype=dtype) * 10 ** (
            2 * torch.rand(1, generator=draw, dtype=dtype) - 1
        )
        w, state = ours.update(w, g, state)
        for k, (row, optimiser) in enumerate(zip(rows, twins, strict=True)):
            row.grad = g[k].clone()
            optimiser.step()
    limit = 1e-6 if dtype == torch.float64 else 1e-6 * max(1, w.abs().max().item())
    assert (w - torch.stack([row.detach() for row in rows])).abs().max() <= limit


@pytest.mark.parametrize("name", list(TWINS))
def test_update_changes_none_of_its_inputs(name: str) -> None:
    w, g = torch.randn(2, 5), torch.randn(2, 5)
    rule = columns([Optimiser.build(name)] * 2, Optimiser.find(name), w)
    _, state = rule.update(w, g, rule.init(w))
    kept = [value.clone() for value in (w, g, *state.values())]
    rule.update(w, g, state)
    assert all(torch.equal(a, b) for a, b in zip(kept, (w, g, *state.values()), strict=True))


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


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[Optimiser], torch.Tensor, torch.Tensor]:
    """Rows of one rule with settings of their own, their start, and the gradients of some steps."""
    name, rows = draw(st.sampled_from(LEAN)), draw(st.integers(1, 3))
    decay, seed = draw(st.sampled_from([None, 0.0, 0.1])), draw(st.integers(0, 2**31))
    rates = draw(st.lists(st.floats(1e-5, 1), min_size=rows, max_size=rows))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(seed)
    size, steps, scale = (
        draw(st.integers(1, 70)),
        draw(st.integers(1, 12)),
        10 ** draw(st.floats(-3, 3)),
    )
    start = torch.randn(rows, size, generator=generator, dtype=dtype)
    objects = [Optimiser.build({"name": name, "lr": lr, "weight_decay": decay}) for lr in rates]
    return objects, start, torch.randn(steps, rows, size, generator=generator, dtype=dtype) * scale


@given(walks())
def test_the_lean_form_equals_the_rule_up_to_rounding(
    walk: tuple[list[Optimiser], torch.Tensor, torch.Tensor],
) -> None:
    objects, start, gradients = walk
    rule = columns(objects, type(objects[0]), start)
    update = lean_update(rule, start)
    assert update != rule.update
    (w, state), (v, other) = ((start, rule.init(start)) for _ in range(2))
    for g in gradients:
        w, state = rule.update(w, g, state)
        v, other = update(v, g, other)
    scale = max(1.0, w.abs().max().item())
    limit = (
        2e-4 if start.dtype == torch.float32 else 1e-10
    ) * scale  # a step's own size is the rate, 1 at most
    assert (w - v).abs().max() <= limit
    assert {name: value.shape for name, value in other.items()} == {
        name: value.shape for name, value in state.items()
    }
    for name, value in other.items():
        assert value.dtype == state[name].dtype
        torch.testing.assert_close(
            value, state[name], rtol=1e-3, atol=1e-5 * gradients.abs().max().item() ** 2 + 1e-6
        )


@given(walks())
def test_a_row_steps_to_the_same_bits_alone_and_in_company(
    walk: tuple[list[Optimiser], torch.Tensor, torch.Tensor],
) -> None:
    objects, start, gradients = walk
    together = columns(objects, type(objects[0]), start)
    w, state = start, together.init(start)
    update = lean_update(together, start)
    for g in gradients:
        w, state = update(w, g, state)
    for k, one in enumerate(objects):
        rule = columns([one], type(one), start)
        v, own = start[k : k + 1], rule.init(start[k : k + 1])
        step = lean_update(rule, v)
        for g in gradients:
            v, own = step(v, g[k : k + 1], own)
        assert torch.equal(v, w[k : k + 1])
        assert all(torch.equal(own[name], state[name][k : k + 1]) for name in own)


@given(walks())
def test_the_lean_form_changes_none_of_its_inputs(
    walk: tuple[list[Optimiser], torch.Tensor, torch.Tensor],
) -> None:
    objects, w, gradients = walk
    rule = columns(objects, type(objects[0]), w)
    update, g = lean_update(rule, w), gradients[0]
    _, state = update(w, g, rule.init(w))
    held = [w, g, *state.values()]
    kept = [value.clone() for value in held]
    update(w, g, state)
    assert all(torch.equal(a, b) for a, b in zip(kept, held, strict=True))


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
        new, after = super().update(w, g, state)
        return new - 0.1 * w, after


@pytest.mark.parametrize("rule", [SignSGD(lr=0.1), Decoupled(lr=0.1)])
def test_a_rule_that_overrides_part_of_another_is_not_replaced_by_that_ones_lean_form(
    rule: Optimiser,
) -> None:
    w, g = torch.ones(1, 3), torch.tensor([[3.0, -1.0, 0.5]])
    own: Any = columns([rule], type(rule), w)
    assert torch.equal(lean_update(own, w)(w, g, own.init(w))[0], own.update(w, g, own.init(w))[0])


def test_a_gradient_in_any_order_of_memory_is_read_rightly() -> None:
    w, g = (
        torch.zeros(1, 4),
        torch.tensor([[1.0, 9.0], [-1.0, 9.0], [1.0, 9.0], [-1.0, 9.0]])[:, 0][None],
    )
    own: Any = columns([Adam(lr=0.1)], Adam, w)
    assert torch.allclose(
        lean_update(own, w)(w, g, own.init(w))[0], own.update(w, g, own.init(w))[0]
    )
