from __future__ import annotations

from collections.abc import Callable
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


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def with_batch_norm() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    ).double()


def train(module: nn.Module, plans: list[Any], optimiser: Optimiser, **options: Any) -> Trained:
    """Rows that start at the module's parameters, each through its plan."""
    layout, rows = Layout.of(module), len(plans)
    w = layout.flatten(module).repeat(rows, 1)
    rule: Any = columns([optimiser] * rows, type(optimiser), w)
    buffers = {
        name: torch.stack([value] * rows) for name, value in layout.copy_buffers(module).items()
    }
    trainer = RowTrainer(module, Samples(X, Y), **options)
    return trainer.train(
        w,
        [ListedBatches(plan) for plan in plans],
        optimiser=rule,
        buffers=buffers,
        seeds=range(rows),
    )


def plans_of(sizes: list[tuple[int, int, int]]) -> list[Any]:
    made = []
    for k, (samples, epochs, batch) in enumerate(sizes):
        draw = torch.Generator().manual_seed(k)
        made.append(
            epoch_batches(torch.randperm(50, generator=draw)[:samples], epochs, batch, draw)
        )
    return made


def by_hand(module: nn.Module, plan: Any, optimiser: torch.optim.Optimizer) -> None:
    module.train()
    for batch in plan:
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(X[batch]), Y[batch]).backward()
        optimiser.step()


UNEQUAL = [(50, 2, 16), (7, 1, 3), (20, 5, 20), (33, 1, 4), (0, 3, 5)]


@pytest.mark.parametrize("form", ["loop", "vmap"])
@pytest.mark.parametrize("model", [mlp, with_batch_norm])
def test_unequal_rows_train_as_a_plain_torch_loop_trains_each_alone(
    form: Any, model: Callable[[], nn.Module]
) -> None:
    plans = plans_of(
        [(50, 2, 16), (8, 1, 4), (20, 5, 20), (33, 1, 4)] if model is with_batch_norm else UNEQUAL
    )
    plans = (
        [[batch for batch in plan if len(batch) > 1] for plan in plans]
        if model is with_batch_norm
        else plans
    )
    done = train(model(), plans, Adam(lr=0.01), form=form)
    for k, plan in enumerate(plans):
        module = model()
        by_hand(module, plan, torch.optim.Adam(module.parameters(), lr=0.01))
        layout = Layout.of(module)
        torch.testing.assert_close(done.w[k], layout.flatten(module), rtol=1e-9, atol=1e-10)
        assert done.work.steps[k] == len(plan)
        for name, value in layout.copy_buffers(module).items():
            torch.testing.assert_close(done.buffers[name][k], value, rtol=1e-9, atol=1e-10)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(1, 12)), min_size=1, max_size=5
    )
)
@settings(deadline=None, max_examples=25)
def test_a_row_does_not_notice_its_company(sizes: list[tuple[int, int, int]]) -> None:
    plans = plans_of(sizes)
    together = train(mlp(), plans, SGD(lr=0.1))
    for k, plan in enumerate(plans):
        alone = train(mlp(), [plan], SGD(lr=0.1))
        assert torch.equal(alone.w[0], together.w[k])
        assert together.work.steps[k] == len(plan) == sizes[k][1] * -(-sizes[k][0] // sizes[k][2])
        assert together.seen[k] == sizes[k][0] * sizes[k][1]


@given(
    st.integers(0, 40),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 50)),
    st.integers(0, 99),
)
def test_a_plan_sees_every_sample_once_per_epoch(
    samples: int, epochs: int, batch: int | None, seed: int
) -> None:
    plan = epoch_batches(
        torch.arange(samples) + 3, epochs, batch, torch.Generator().manual_seed(seed)
    )
    seen = torch.cat([torch.zeros(0, dtype=torch.long), *plan])
    assert torch.equal(seen.sort()[0], (torch.arange(samples) + 3).repeat(epochs).sort()[0])
    assert all(0 < len(part) <= (batch or samples) for part in plan)


def test_padding_never_reaches_the_gradient() -> None:
    rows = [torch.arange(9), torch.arange(2)]
    batch = gather(X, Y, rows)
    assert batch.x.shape == (2, 9, 6)
    spoiled = Batch(batch.x.clone(), batch.y.clone(), batch.counts)
    spoiled.x[1, 2:] = 1e6
    spoiled.y[1, 2:] = mlp()(spoiled.x[1, 2:]).argmax(1)  # each of them would be a hit
    w = Layout.of(mlp()).flatten(mlp()).repeat(2, 1)
    for form in ("loop", "vmap"):
        clean, dirty = (
            row_gradients(mlp(), form)(w, {}, one, NONE, NONE) for one in (batch, spoiled)
        )  # type: ignore[arg-type]
        assert torch.equal(clean.g, dirty.g)
        assert torch.equal(clean.loss, dirty.loss)
        assert torch.equal(clean.hits, dirty.hits)
        assert clean.hits.flatten().tolist() == [
            hits(mlp()(X[row]), Y[row]).sum().item() for row in rows
        ]


def test_the_loop_reports_the_mean_loss_and_accuracy_over_the_samples_it_saw() -> None:
    module = mlp()
    plan = [torch.arange(10), torch.arange(10, 14)]
    frozen = train(module, [plan], SGD(lr=1e-30))
    loss, hit = evaluate(module, X[:14], Y[:14])
    assert (frozen.loss / frozen.seen).item() == pytest.approx(loss.mean().item())
    assert (frozen.hits / frozen.seen).item() == pytest.approx(hit.double().mean().item())


def test_another_gradient_function_can_be_injected() -> None:
    def towards_one(
        w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        return Gradients(w - 1, torch.zeros(len(w), 1), torch.zeros(len(w), 1), buffers)

    done = train(mlp(), [[torch.arange(1)] * 60] * 2, SGD(lr=0.5), gradient=towards_one)
    torch.testing.assert_close(done.w, torch.ones_like(done.w))


def test_the_gradient_function_leaves_the_model_it_was_given_alone() -> None:
    module = with_batch_norm()
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    train(module, plans_of([(20, 1, 5)] * 2), SGD(lr=0.5))
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())


def test_evaluating_in_chunks_changes_nothing() -> None:
    whole, parts = (evaluate(mlp(), X, Y, chunk=size) for size in (1000, 7))
    torch.testing.assert_close(whole, parts)
    assert len(evaluate(mlp(), X[:0], Y[:0])[0]) == 0
