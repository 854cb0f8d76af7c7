"""The GPU's loop, taken step by step on the CPU: its steps must be those of the looped form."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.core.rows import columns
from tacit.core.vectors import Layout
from tacit.federated.algorithms.fedprox import FedProx
from tacit.training import captured, evaluation
from tacit.training.batches import (
    ListedBatches,
    PackedBatches,
    Samples,
    epoch_batches,
    pack_epoch_batches,
)
from tacit.training.captured import (
    CapturedTrainer,
    Workspace,
    _map,
    add_to_tally,
    take_batch,
    update,
)
from tacit.training.evaluation import evaluate, evaluate_rows, row_outputs
from tacit.training.gradients import Gradients
from tacit.training.optimisers import Adam, Momentum, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Trained

torch.manual_seed(0)
X, Y = torch.randn(50, 6, dtype=torch.float64), torch.randint(0, 3, (50,))
MODULE = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
Sizes = list[tuple[int, int, int | None]]  # samples, epochs and batch size of each row


def trainer_of(form: Any) -> RowTrainer:
    return RowTrainer(MODULE, Samples(X, Y), form=form)


def train(trainer: RowTrainer, batches: Any, optimiser: Optimiser) -> Trained:
    rows = len(batches)
    w = trainer.layout.flatten(MODULE).repeat(rows, 1)
    rule: Any = columns([FedProx(mu=0.1 * k) for k in range(rows)], FedProx, w)
    mine: Any = columns([optimiser] * rows, type(optimiser), w)
    return trainer.train(w, batches, optimiser=mine, rule=rule, sent={"x": w})


def in_a_loop(plans: list[ListedBatches], optimiser: Optimiser) -> Trained:
    return train(trainer_of("loop"), plans, optimiser)


def captured_of(trainer: RowTrainer) -> CapturedTrainer:
    assert trainer.captured is not None
    return trainer.captured


def a_stage(rows: int) -> Workspace:
    trainer = trainer_of("captured")
    train(trainer, plans_of([(9, 1, 4)] * rows)[1], Adam())
    return next(iter(captured_of(trainer).stages.values()))


def plans_of(sizes: Sizes) -> tuple[list[ListedBatches], list[PackedBatches]]:
    def draw(k: int) -> torch.Generator:
        return torch.Generator().manual_seed(k)

    plans = [
        ListedBatches(epoch_batches(torch.arange(n), e, b, draw(k)))
        for k, (n, e, b) in enumerate(sizes)
    ]
    return plans, [
        pack_epoch_batches(torch.arange(n), e, b, draw(k)) for k, (n, e, b) in enumerate(sizes)
    ]


row_sizes = st.tuples(st.integers(1, 40), st.integers(1, 3), st.sampled_from([1, 7, 8, None]))


@settings(max_examples=25)
@given(
    st.lists(st.lists(row_sizes, min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from([Adam(), Momentum()]),
)
def test_one_trainer_takes_any_blocks_as_the_loop_does(
    blocks: list[Sizes], optimiser: Optimiser
) -> None:
    trainer = trainer_of("captured")
    for sizes in blocks:
        plans, packed = plans_of(sizes)
        wanted = in_a_loop(plans, optimiser)
        found = train(trainer, packed, optimiser)
        for one, other in (
            (wanted.w, found.w),
            (wanted.loss, found.loss),
            (wanted.hits, found.hits),
        ):
            assert torch.allclose(one.double(), other.double(), rtol=0, atol=1e-11)
        assert torch.equal(wanted.work.steps, found.work.steps)
        assert torch.equal(wanted.seen, found.seen)


def test_what_is_returned_is_not_changed_by_the_next_block() -> None:
    trainer = trainer_of("captured")
    _, packed = plans_of([(20, 1, 8), (9, 2, 8)])
    first = train(trainer, packed, Adam())
    before = first.w.clone()
    train(trainer, packed[::-1], Adam())
    assert torch.equal(first.w, before)


def test_rows_without_a_step_stay_where_they_are() -> None:
    trainer = trainer_of("captured")
    _, packed = plans_of([(20, 1, 8), (20, 1, 8)])
    done = train(trainer, [packed[0].first(0), packed[1]], Adam())
    assert torch.equal(done.w[0], trainer.layout.flatten(MODULE))
    assert done.work.steps.flatten().tolist() == [0, 3]


@given(st.integers(0, 20), st.integers(1, 3), st.sampled_from([1, 4, 20, 33, None]))
def test_a_packed_plan_is_the_plan(samples: int, epochs: int, size: int | None) -> None:
    index = torch.randperm(50)[:samples]
    plan = epoch_batches(index, epochs, size, torch.Generator().manual_seed(1))
    packed = pack_epoch_batches(index, epochs, size, torch.Generator().manual_seed(1))
    assert len(plan) == len(packed)
    for batch, row, count in zip(plan, packed.index, packed.counts, strict=True):
        assert torch.equal(batch, row[:count])


@pytest.mark.parametrize("signed", [False, True])
def test_pictures_become_bytes_and_come_back_to_the_bit(signed: bool) -> None:
    pixels = torch.arange(256, dtype=torch.float32).div(255).repeat(2).view(8, 4, 4, 4)
    x = pixels.sub(0.5).mul(2) if signed else pixels
    samples = Samples.compact(x, torch.zeros(8, dtype=torch.int64))
    assert samples.x.dtype == torch.uint8
    assert torch.equal(samples.take(slice(None)), x)
    packed = samples.pack(lambda part: torch.nn.functional.pad(part.movedim(1, -1), (0, 3)))
    assert torch.equal(packed.features(torch.tensor([3, 1])), x[[3, 1]])


@pytest.mark.parametrize(
    "x", [torch.rand(4, 3), torch.rand(4, 3, dtype=torch.float64), torch.randn(4, 3) * 100]
)
def test_other_numbers_stay_floats(x: Tensor) -> None:
    samples = Samples.compact(x, torch.zeros(4))
    assert samples.x is x


def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("the kernels are not interpreted here")
    monkeypatch.setattr(captured, "_has_kernels", lambda _: True)


@pytest.mark.parametrize("samples", [Samples(torch.rand(20, 3, 5), torch.arange(20)), None])
def test_the_kernel_takes_the_batch_that_torch_takes(
    samples: Samples | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = torch.randint(0, 256, (20, 3, 5), dtype=torch.uint8)
    plan = torch.randint(0, 20, (4, 3, 6), dtype=torch.int32)
    counts = torch.randint(1, 6, (4, 3), dtype=torch.int32)
    stage = replace(a_stage(1), plan=plan, counts=counts, step=torch.tensor([2]))
    for one in (
        [samples]
        if samples
        else [Samples(pixels, torch.arange(20), 255.0, signed) for signed in (False, True)]
    ):
        wanted = take_batch(one, stage, 2)
        with monkeypatch.context() as patched:
            with_kernels(patched)
            found = take_batch(one, stage, 2)
        assert torch.equal(wanted.x, found.x)
        assert torch.equal(wanted.y, found.y)
        assert torch.equal(torch.as_tensor(wanted.counts), torch.as_tensor(found.counts))


@pytest.mark.parametrize("decayed", [False, True])
def test_the_kernels_take_adams_step(decayed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_kernels(monkeypatch)
    w, g = torch.randn(3, 2000), torch.randn(3, 2000)
    decay = 0.1 if decayed else None
    kinds = [
        Adam(lr=0.1, weight_decay=decay),
        Adam(beta1=0.5, weight_decay=decay),
        Adam(eps=0.1, weight_decay=decay),
    ]
    rule: Any = columns(kinds, Adam, w)
    state = {name: rows.clone() for name, rows in rule.init(w).items()}
    wanted, kept = w, state
    ours, mine = w.clone(), {name: rows.clone() for name, rows in state.items()}
    for _ in range(3):
        wanted, kept = rule.update(wanted, g, kept)
        update(rule, ours, g, mine)
    assert torch.allclose(wanted, ours, rtol=1e-5, atol=1e-6)
    for name, rows in kept.items():
        assert torch.allclose(rows, mine[name], rtol=1e-5, atol=1e-7)


def test_the_kernel_adds_a_step_to_the_tally(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [torch.rand(3, 1) for _ in range(2)]
    counts = torch.tensor([[4], [1], [7]], dtype=torch.int32)
    totals = []
    for kernel in (False, True):
        block = _map(lambda leaf: torch.zeros_like(leaf).float(), a_stage(3).block)
        with monkeypatch.context() as patched:
            with_kernels(patched) if kernel else None
            for _ in range(2):
                add_to_tally(block, Gradients(block.w, *draws, {}), counts)
        totals.append(torch.cat([block.loss, block.hits, block.seen, block.work.steps], 1))
    assert torch.allclose(*totals)
    assert totals[0][:, 3].tolist() == [2, 2, 2]


def test_two_kinds_of_blocks_take_turns() -> None:
    trainer = trainer_of("captured")
    plans, packed = plans_of([(20, 1, 8), (9, 2, 8)])
    for optimiser in (Adam(), Momentum(), Adam()):
        wanted = in_a_loop(plans, optimiser)
        assert torch.allclose(wanted.w, train(trainer, packed, optimiser).w, rtol=0, atol=1e-11)
    assert len(captured_of(trainer).stages) == 2


def test_many_models_are_tested_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Layout.of(MODULE).flatten(MODULE).repeat(3, 1)
    whole = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), torch.arange(50))
    monkeypatch.setattr(evaluation, "AT_ONCE", 21)
    parts = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), torch.arange(50))
    assert torch.allclose(whole[0], parts[0])
    assert parts[1].shape == (3, 50)


def test_many_models_are_tested_as_each_alone() -> None:
    layout = Layout.of(MODULE)
    w = torch.stack([layout.flatten(MODULE) + 0.1 * k for k in range(3)])
    places = torch.stack([torch.randperm(50)[:11] for _ in range(3)])
    for index in (torch.arange(50), places):
        loss, hit = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), index)
        for k in range(3):
            layout.load(MODULE, w[k])
            own = index if index.dim() == 1 else index[k]
            wanted = evaluate(MODULE, X[own], Y[own])
            assert torch.allclose(wanted[0], loss[k])
            assert torch.equal(wanted[1], hit[k])


class Forgetful(nn.Module):
    """Notes on itself what it has seen."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        found: Tensor = MODULE(self.seen * 1)
        return found


@pytest.mark.parametrize("module", [MODULE, Forgetful()])
def test_chunks_side_by_side_are_the_same_figures(module: nn.Module) -> None:
    one, other = (evaluate(module, X, Y, 7, beside) for beside in (1, 3))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


class Replayed:
    """In place of a CUDA graph: takes the steps again."""

    def __init__(self, trainer: CapturedTrainer, *steps: Any) -> None:
        self.trainer, self.steps = trainer, steps

    def replay(self) -> None:
        self.trainer._steps(*self.steps)


@pytest.mark.parametrize(("failures", "captured_at_last"), [(0, True), (2, True), (99, False)])
def test_what_cannot_be_recorded_at_once_is_tried_again_and_then_taken_step_by_step(
    failures: int, captured_at_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def recorded(trainer: CapturedTrainer, *steps: Any) -> Any:
        calls.append(steps[1:])
        trainer._steps(*steps[:2], 1)  # the warm-up leaves its traces, which must be undone
        if len(calls) <= failures:
            raise RuntimeError("busy\nwith details")
        return Replayed(trainer, *steps)

    monkeypatch.setattr(CapturedTrainer, "_recorded", recorded)
    plans, packed = plans_of([(30, 2, 8), (7, 1, 8), (20, 3, 4)])
    trainer = trainer_of("captured")
    captured_of(trainer).capture = True
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = train(trainer, packed, Adam())
    assert torch.allclose(in_a_loop(plans, Adam()).w, found.w, rtol=0, atol=1e-11)
    assert captured_of(trainer).capture == captured_at_last
    told = ["steps cannot be recorded as a CUDA graph and are taken one by one: busy"]
    assert [str(one.message) for one in heard] == ([] if captured_at_last else told)
    assert {rows for rows, _ in calls} <= {1, 2, 3}  # a graph for each number of rows at work
