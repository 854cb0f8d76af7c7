"""Without a private name of torch, the public way gives the same, up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tacit.core import torch_private
from tacit.core.rows import columns
from tacit.core.vectors import Layout
from tacit.training.batches import Batch, ListedBatches, Samples
from tacit.training.gradients import mixes_samples, row_gradients
from tacit.training.optimisers import Adam, lean_update
from tacit.training.row_trainer import RowTrainer
from tacit.training.torch_modes import draws_numbers

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def module() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    private = getattr(torch_private, name)
    assert private is not None, f"this torch has no {name}: only the fallback is tried"
    monkeypatch.setattr(torch_private, name, None)


def test_a_row_is_loaded_tensor_by_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    off("FOREACH_COPY", monkeypatch)
    target = module()
    layout = Layout.of(target)
    row = torch.randn(layout.size)
    layout.load(target, row)
    assert torch.equal(layout.flatten(target), row)


def gradient() -> Tensor:
    w = Layout.of(module()).flatten(module())[None]
    gradients = row_gradients(module())
    batch = Batch(X[None], Y[None], (12,))
    return gradients(w, {}, batch, torch.zeros(1), torch.zeros(())).g


def test_gradients_come_from_the_public_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = gradient()
    off("ENGINE", monkeypatch)
    torch.testing.assert_close(gradient(), wanted)


def five_steps_of_adam() -> Tensor:
    w = torch.ones(1, 40)
    rule = columns([Adam(lr=0.1)], Adam, w)
    update = lean_update(rule, w)
    state = rule.init(w)
    for step in range(5):
        g = torch.sin(torch.arange(40.0) + step)[None]
        w, state = update(w, g, state)
    return w


def test_adam_steps_without_its_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = five_steps_of_adam()
    off("FUSED_ADAM", monkeypatch)
    torch.testing.assert_close(five_steps_of_adam(), wanted, rtol=1e-5, atol=1e-6)


def test_a_whole_training_needs_no_private_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> Tensor:
        trainer = RowTrainer(module(), Samples(X, Y))
        w = trainer.layout.flatten(module()).repeat(2, 1)
        batches = [ListedBatches(torch.arange(12).split(4))] * 2
        optimiser = columns([Adam()] * 2, Adam, w)
        return trainer.train(w, batches, optimiser=optimiser).w

    wanted = trained()
    for name in ("FOREACH_COPY", "ENGINE", "FUSED_ADAM", "BATCH_NORM", "DROPOUT"):
        off(name, monkeypatch)
    torch.testing.assert_close(trained(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("norm", [nn.BatchNorm1d(6), nn.SyncBatchNorm(6), nn.LazyBatchNorm2d()])
def test_batch_norm_is_recognised(
    private: bool, norm: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not private:
        off("BATCH_NORM", monkeypatch)
    assert torch_private.is_batch_norm(norm)
    assert not torch_private.is_batch_norm(nn.GroupNorm(2, 6))
    untracked = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, track_running_stats=False))
    assert mixes_samples(untracked)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize(
    "layer", [nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()]
)
def test_dropout_is_recognised(
    private: bool, layer: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not private:
        off("DROPOUT", monkeypatch)
    assert torch_private.is_dropout(layer)
    assert draws_numbers(nn.Sequential(nn.Linear(6, 6), layer), X)
    assert not draws_numbers(module(), X)


def test_hooks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    hooked = nn.Linear(2, 2)
    assert not torch_private.has_hooks(hooked)
    hooked.register_forward_pre_hook(lambda _module, _inputs: None)
    assert torch_private.has_hooks(hooked)


def test_where_hooks_cannot_be_seen_our_kernels_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    from tacit.training.kernel_reader import read

    assert read(module(), (6,)) is not None
    monkeypatch.setattr(torch_private, "HOOKS", ("_moved_elsewhere",))
    assert read(module(), (6,)) is None
