from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.core.rows import Rows, columns
from tacit.core.vectors import Layout
from tacit.training.batches import Batch, ListedBatches, Samples, epoch_batches, gather
from tacit.training.evaluation import evaluate
from tacit.training.gradients import Gradients, row_gradients
from tacit.training.losses import hits
from tacit.training.optimisers import SGD, Adam, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Trained

torch.manual_seed(0)
X, Y = torch.randn(50, 6, dtype=torch.float64), torch.randint(0, 3, (50,))
NONE = torch.zeros(0, dtype=torch.int64)  # seeds and steps, which these gradients do not look at
Size = tuple[int, int, int]  # a row's samples, epochs and batch size


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def with_batch_norm() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


def train(module: nn.Module, batches: list[Any], optimiser: Optimiser, **options: Any) -> Trained:
    """Rows that start at the module's parameters, each through its batches."""
    layout = Layout.of(module)
    rows = len(batches)
    w = layout.flatten(module).repeat(rows, 1)
    row_optimisers: Any = columns([optimiser] * rows, type(optimiser), w)
    buffers = {}
    for name, value in layout.copy_buffers(module).items():
        buffers[name] = torch.stack([value] * rows)
    trainer = RowTrainer(module, Samples(X, Y), **options)
    listed = [ListedBatches(row_batches) for row_batches in batches]
    return trainer.train(w, listed, optimiser=row_optimisers, buffers=buffers, seeds=range(rows))


def batches_of(sizes: list[Size]) -> list[Any]:
    rows = []
    for k, (samples, epochs, batch_size) in enumerate(sizes):
        draw = torch.Generator().manual_seed(k)
        shard = torch.randperm(50, generator=draw)[:samples]
        rows.append(epoch_batches(shard, epochs, batch_size, draw))
    return rows


def by_hand(module: nn.Module, batches: Any, optimiser: torch.optim.Optimizer) -> None:
    module.train()
    for batch in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(X[batch]), Y[batch]).backward()
        optimiser.step()


UNEQUAL: list[Size] = [(50, 2, 16), (7, 1, 3), (20, 5, 20), (33, 1, 4), (0, 3, 5)]
UNEQUAL_WITH_SAMPLES: list[Size] = [(50, 2, 16), (8, 1, 4), (20, 5, 20), (33, 1, 4)]


def batches_for(model: Callable[[], nn.Module]) -> list[Any]:
    """Batches of unequal rows; BatchNorm wants at least two samples in each."""
    if model is not with_batch_norm:
        return batches_of(UNEQUAL)
    return [without_single_samples(batches) for batches in batches_of(UNEQUAL_WITH_SAMPLES)]


def without_single_samples(batches: Sequence[Tensor]) -> list[Tensor]:
    return [batch for batch in batches if len(batch) > 1]


@pytest.mark.parametrize("form", ["loop", "vmap"])
@pytest.mark.parametrize("model", [mlp, with_batch_norm])
def test_unequal_rows_train_as_a_plain_torch_loop_trains_each_alone(
    form: Any, model: Callable[[], nn.Module]
) -> None:
    batches = batches_for(model)
    trained = train(model(), batches, Adam(lr=0.01), form=form)
    for k, row_batches in enumerate(batches):
        module = model()
        by_hand(module, row_batches, torch.optim.Adam(module.parameters(), lr=0.01))
        layout = Layout.of(module)
        torch.testing.assert_close(trained.w[k], layout.flatten(module), rtol=1e-9, atol=1e-10)
        assert trained.work.steps[k] == len(row_batches)
        for name, value in layout.copy_buffers(module).items():
            torch.testing.assert_close(trained.buffers[name][k], value, rtol=1e-9, atol=1e-10)


row_sizes = st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(1, 12))


@given(st.lists(row_sizes, min_size=1, max_size=5))
@settings(deadline=None, max_examples=25)
def test_a_row_does_not_notice_its_company(sizes: list[Size]) -> None:
    batches = batches_of(sizes)
    together = train(mlp(), batches, SGD(lr=0.1))
    for k, (samples, epochs, batch_size) in enumerate(sizes):
        alone = train(mlp(), [batches[k]], SGD(lr=0.1))
        assert torch.equal(alone.w[0], together.w[k])
        steps = epochs * math.ceil(samples / batch_size)
        assert together.work.steps[k] == len(batches[k]) == steps
        assert together.seen[k] == samples * epochs


@given(
    st.integers(0, 40),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 50)),
    st.integers(0, 99),
)
def test_batches_see_every_sample_once_per_epoch(
    samples: int, epochs: int, batch_size: int | None, seed: int
) -> None:
    shard = torch.arange(samples) + 3
    batches = epoch_batches(shard, epochs, batch_size, torch.Generator().manual_seed(seed))
    seen = torch.cat([torch.zeros(0, dtype=torch.long), *batches])
    assert torch.equal(seen.sort()[0], shard.repeat(epochs).sort()[0])
    assert all(0 < len(batch) <= (batch_size or samples) for batch in batches)


def test_padding_never_reaches_the_gradient() -> None:
    rows = [torch.arange(9), torch.arange(2)]
    batch = gather(X, Y, rows)
    assert batch.x.shape == (2, 9, 6)
    spoiled = Batch(batch.x.clone(), batch.y.clone(), batch.counts)
    spoiled.x[1, 2:] = 1e6
    spoiled.y[1, 2:] = mlp()(spoiled.x[1, 2:]).argmax(1)  # each of them would be a hit
    w = Layout.of(mlp()).flatten(mlp()).repeat(2, 1)
    right = [hits(mlp()(X[row]), Y[row]).sum().item() for row in rows]
    forms: list[Any] = ["loop", "vmap"]
    for form in forms:
        gradient = row_gradients(mlp(), form)
        clean = gradient(w, {}, batch, NONE, NONE)
        dirty = gradient(w, {}, spoiled, NONE, NONE)
        assert torch.equal(clean.g, dirty.g)
        assert torch.equal(clean.loss, dirty.loss)
        assert torch.equal(clean.hits, dirty.hits)
        assert clean.hits.flatten().tolist() == right


def test_the_loop_reports_the_mean_loss_and_accuracy_over_the_samples_it_saw() -> None:
    module = mlp()
    batches = [torch.arange(10), torch.arange(10, 14)]
    frozen = train(module, [batches], SGD(lr=1e-30))
    answers = evaluate(module, X[:14], Y[:14])
    hits = answers.hits(Y[:14])
    assert (frozen.loss / frozen.seen).item() == pytest.approx(answers.losses.mean().item())
    assert (frozen.hits / frozen.seen).item() == pytest.approx(hits.double().mean().item())


def test_another_gradient_function_can_be_injected() -> None:
    def towards_one(
        w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        zero = torch.zeros(len(w), 1)
        return Gradients(w - 1, zero, zero, buffers)

    trained = train(mlp(), [[torch.arange(1)] * 60] * 2, SGD(lr=0.5), gradient=towards_one)
    torch.testing.assert_close(trained.w, torch.ones_like(trained.w))


def test_the_gradient_function_leaves_the_model_it_was_given_alone() -> None:
    module = with_batch_norm()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    train(module, batches_of([(20, 1, 5)] * 2), SGD(lr=0.5))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_evaluating_in_chunks_changes_nothing() -> None:
    whole = evaluate(mlp(), X, Y, chunk=1000)
    in_chunks = evaluate(mlp(), X, Y, chunk=7)
    torch.testing.assert_close(whole, in_chunks)
    assert len(evaluate(mlp(), X[:0], Y[:0])[0]) == 0
