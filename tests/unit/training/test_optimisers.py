from __future__ import annotations

import pytest
import torch

from tacit.core.errors import StudyError
from tacit.core.rows import columns
from tacit.training.optimisers import Optimiser
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
def test_it_equals_its_torch_twin_over_two_hundred_steps(name: str, decay: float | None, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(3, 40, generator=draw, dtype=dtype)
    rates = [0.01, 0.003, 0.02]
    objects = [Optimiser.build({"name": name, "lr": lr, "weight_decay": decay}) for lr in rates]
    ours = columns(objects, type(objects[0]), start)
    twin, settings = TWINS[name]
    rows = [row.clone().requires_grad_() for row in start]
    twins = [twin([row], lr=lr, weight_decay=decay or 0.0, **settings) for row, lr in zip(rows, rates, strict=True)]
    w, state = start, ours.init(start)
    for _ in range(200):
        g = torch.randn(3, 40, generator=draw, dtype=dtype) * 10 ** (2 * torch.rand(1, generator=draw, dtype=dtype) - 1)
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
