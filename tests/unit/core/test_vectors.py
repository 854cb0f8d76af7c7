from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.core.errors import StudyError
from tacit.core.vectors import Layout, pack, unpack

layers = st.lists(st.sampled_from(["linear", "conv", "norm", "scale"]), min_size=1, max_size=4)


def build(kinds: list[str]) -> nn.Module:
    makers = {
        "linear": lambda: nn.Linear(3, 2),
        "conv": lambda: nn.Conv1d(2, 3, 2),
        "norm": lambda: nn.BatchNorm1d(4),
        "scale": lambda: nn.Linear(1, 1, bias=False),
    }
    return nn.Sequential(*(makers[kind]() for kind in kinds))


@given(layers)
@settings(deadline=None)
def test_a_model_survives_the_way_to_a_row_and_back(kinds: list[str]) -> None:
    module = build(kinds)
    twin = build(kinds)
    layout = Layout.of(module)
    layout.load(twin, layout.flatten(module), layout.copy_buffers(module))
    for name, value in module.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name])
    assert layout.flatten(module).shape == (sum(p.numel() for p in module.parameters()),)


@given(layers, st.integers(0, 2**31))
@settings(deadline=None)
def test_a_row_survives_the_way_to_a_model_and_back(kinds: list[str], seed: int) -> None:
    module = build(kinds)
    layout = Layout.of(module)
    row = torch.randn(layout.size, generator=torch.Generator().manual_seed(seed))
    layout.load(module, row)
    assert torch.equal(layout.flatten(module), row)


def test_flattening_copies_and_unflattening_views() -> None:
    module = nn.Linear(2, 2)
    layout = Layout.of(module)
    row = layout.flatten(module)
    with torch.no_grad():
        module.weight.zero_()
    assert row[:4].abs().sum() > 0
    layout.unflatten(row)["weight"].fill_(7)
    assert (row[:4] == 7).all()


def test_frozen_parameters_stay_out_of_the_row() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    assert Layout.of(module).names == ("1.weight", "1.bias")


def test_a_shared_parameter_appears_once() -> None:
    first = nn.Linear(2, 2)
    assert Layout.of(nn.Sequential(first, first)).size == 6


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(StudyError, match="nothing to learn"):
        Layout.of(nn.ReLU())


def test_a_row_of_the_wrong_length_is_refused() -> None:
    module = nn.Linear(2, 1)
    with pytest.raises(ValueError, match="expected a row of 3"):
        Layout.of(module).load(module, torch.zeros(4))


def test_buffers_are_contiguous_copies_and_survive_packing() -> None:
    module = nn.BatchNorm2d(3)
    layout = Layout.of(module)
    buffers = layout.copy_buffers(module)
    assert set(buffers) == {"running_mean", "running_var", "num_batches_tracked"}
    assert all(value.is_contiguous() for value in buffers.values())
    buffers["running_mean"].fill_(3)
    assert module.running_mean is not None
    assert module.running_mean.abs().sum() == 0
    rows = {name: torch.stack([value, value + 1]) for name, value in buffers.items()}
    packed = pack(rows)
    assert packed["buffers"].shape == (2, 6)
    assert packed["counters"].shape == (2, 1)
    second = {name: value[1] for name, value in packed.items()}
    back = unpack(second, buffers)
    for name, value in rows.items():
        assert torch.equal(back[name], value[1])
        assert back[name].dtype == value.dtype
