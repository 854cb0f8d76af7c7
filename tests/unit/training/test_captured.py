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
from tacit.training.captured import CapturedTrainer, _fits_kernel, add_to_totals, take_batch, update
from tacit.training.evaluation import Answers, evaluate, evaluate_rows, row_outputs
from tacit.training.gradients import Gradients
from tacit.training.optimisers import Adam, Momentum, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Trained
from tacit.training.workspace import Workspace, map_tensors

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
    row_optimisers: Any = columns([optimiser] * rows, type(optimiser), w)
    return trainer.train(w, batches, optimiser=row_optimisers, rule=rule, sent={"x": w})


def in_a_loop(batches: list[ListedBatches], optimiser: Optimiser) -> Trained:
    return train(trainer_of("loop"), batches, optimiser)


def captured_of(trainer: RowTrainer) -> CapturedTrainer:
    assert trainer.captured is not None
    return trainer.captured


def a_workspace(rows: int) -> Workspace:
    trainer = trainer_of("captured")
    train(trainer, packed_batches([(9, 1, 4)] * rows), Adam())
    return next(iter(captured_of(trainer).workspaces.by_kind.values()))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def listed_batches(sizes: Sizes) -> list[ListedBatches]:
    rows = []
    for k, (count, epochs, batch_size) in enumerate(sizes):
        steps = epoch_batches(torch.arange(count), epochs, batch_size, seeded(k))
        rows.append(ListedBatches(steps))
    return rows


def packed_batches(sizes: Sizes) -> list[PackedBatches]:
    """The same as `listed_batches`, packed."""
    rows = []
    for k, (count, epochs, batch_size) in enumerate(sizes):
        rows.append(pack_epoch_batches(torch.arange(count), epochs, batch_size, seeded(k)))
    return rows


row_sizes = st.tuples(st.integers(1, 40), st.integers(1, 3), st.sampled_from([1, 7, 8, None]))


@settings(max_examples=25)
@given(
    st.lists(st.lists(row_sizes, min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from([Adam(), Momentum()]),
)
def test_one_trainer_takes_any_rows_as_the_loop_does(
    rounds: list[Sizes], optimiser: Optimiser
) -> None:
    trainer = trainer_of("captured")
    for sizes in rounds:
        looped = in_a_loop(listed_batches(sizes), optimiser)
        captured = train(trainer, packed_batches(sizes), optimiser)
        assert torch.allclose(looped.w, captured.w, rtol=0, atol=1e-11)
        assert torch.allclose(looped.loss, captured.loss, rtol=0, atol=1e-11)
        assert torch.equal(looped.hits.double(), captured.hits.double())
        assert torch.equal(looped.work.steps, captured.work.steps)
        assert torch.equal(looped.seen, captured.seen)


def test_what_is_returned_is_not_changed_by_the_next_rows() -> None:
    trainer = trainer_of("captured")
    batches = packed_batches([(20, 1, 8), (9, 2, 8)])
    first = train(trainer, batches, Adam())
    before = first.w.clone()
    train(trainer, batches[::-1], Adam())
    assert torch.equal(first.w, before)


def test_rows_without_a_step_stay_where_they_are() -> None:
    trainer = trainer_of("captured")
    batches = packed_batches([(20, 1, 8), (20, 1, 8)])
    trained = train(trainer, [batches[0].first(0), batches[1]], Adam())
    assert torch.equal(trained.w[0], trainer.layout.flatten(MODULE))
    assert trained.work.steps.flatten().tolist() == [0, 3]


@given(st.integers(0, 20), st.integers(1, 3), st.sampled_from([1, 4, 20, 33, None]))
def test_packed_batches_are_the_listed_ones(samples: int, epochs: int, size: int | None) -> None:
    index = torch.randperm(50, generator=seeded(2))[:samples]
    listed = epoch_batches(index, epochs, size, seeded(1))
    packed = pack_epoch_batches(index, epochs, size, seeded(1))
    assert len(listed) == len(packed)
    for batch, row, count in zip(listed, packed.index, packed.counts, strict=True):
        assert torch.equal(batch, row[:count])


@pytest.mark.parametrize("signed", [False, True])
def test_pictures_become_bytes_and_come_back_to_the_bit(signed: bool) -> None:
    pixels = torch.arange(256, dtype=torch.float32).div(255).repeat(2).view(8, 4, 4, 4)
    x = pixels.sub(0.5).mul(2) if signed else pixels
    samples = Samples.compact(x, torch.zeros(8, dtype=torch.int64))
    assert samples.x.dtype == torch.uint8
    assert torch.equal(samples.take(slice(None)), x)
    packed = samples.pack(lambda pictures: nn.functional.pad(pictures.movedim(1, -1), (0, 3)))
    assert torch.equal(packed.features(torch.tensor([3, 1])), x[[3, 1]])


@pytest.mark.parametrize(("scale", "dtype"), [(1, torch.float32), (1, torch.float64), (100, None)])
def test_other_numbers_stay_floats(scale: float, dtype: torch.dtype | None) -> None:
    x = torch.randn(4, 3, generator=seeded(3), dtype=dtype) * scale
    samples = Samples.compact(x, torch.zeros(4))
    assert samples.x is x


def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("the kernels are not interpreted here")
    monkeypatch.setattr(captured, "_has_kernels", lambda _: True)


LABELS = torch.arange(20)
FLOATS = torch.rand(20, 3, 5, generator=seeded(4))
PIXELS = torch.randint(0, 256, (20, 3, 5), generator=seeded(5), dtype=torch.uint8)


@pytest.mark.parametrize(
    "samples",
    [
        Samples(FLOATS, LABELS),
        Samples(PIXELS, LABELS, 255.0),
        Samples(PIXELS, LABELS, 255.0, signed=True),
    ],
    ids=["floats", "pixels", "signed pixels"],
)
def test_the_kernel_takes_the_batch_that_torch_takes(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = torch.randint(0, 20, (4, 3, 6), generator=seeded(6), dtype=torch.int32)
    counts = torch.randint(1, 6, (4, 3), generator=seeded(7), dtype=torch.int32)
    workspace = replace(a_workspace(1), index=index, counts=counts, step=torch.tensor([2]))
    by_torch = take_batch(samples, workspace, 2)
    with_kernels(monkeypatch)
    by_kernel = take_batch(samples, workspace, 2)
    assert torch.equal(by_torch.x, by_kernel.x)
    assert torch.equal(by_torch.y, by_kernel.y)
    assert torch.equal(torch.as_tensor(by_torch.counts), torch.as_tensor(by_kernel.counts))


@pytest.mark.parametrize("decayed", [False, True])
def test_the_kernels_take_adams_step(decayed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_kernels(monkeypatch)
    w = torch.randn(3, 2000, generator=seeded(8))
    g = torch.randn(3, 2000, generator=seeded(9))
    decay = 0.1 if decayed else None
    row_optimisers = [
        Adam(lr=0.1, weight_decay=decay),
        Adam(beta1=0.5, weight_decay=decay),
        Adam(eps=0.1, weight_decay=decay),
    ]
    rule: Any = columns(row_optimisers, Adam, w)
    rule_w = w
    rule_state = rule.init(w)
    kernel_w = w.clone()
    kernel_state = {name: rows.clone() for name, rows in rule_state.items()}
    for _ in range(3):
        rule_w, rule_state = rule.update(rule_w, g, rule_state)
        update(rule, kernel_w, g, kernel_state)
    assert torch.allclose(rule_w, kernel_w, rtol=1e-5, atol=1e-6)
    for name, rows in rule_state.items():
        assert torch.allclose(rows, kernel_state[name], rtol=1e-5, atol=1e-7)


def test_the_kernel_adds_a_step_to_the_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = torch.rand(3, 1, generator=seeded(10))
    hits = torch.rand(3, 1, generator=seeded(11))
    counts = torch.tensor([[4], [1], [7]], dtype=torch.int32)
    trained = a_workspace(3).loop_state

    def totals() -> Tensor:
        rows = map_tensors(lambda leaf: torch.zeros_like(leaf).float(), trained)
        for _ in range(2):
            add_to_totals(rows, Gradients(rows.w, loss, hits, {}), counts)
        return torch.cat([rows.loss, rows.hits, rows.seen, rows.work.steps], 1)

    by_torch = totals()
    with_kernels(monkeypatch)
    assert torch.allclose(by_torch, totals())
    assert by_torch[:, 3].tolist() == [2, 2, 2]


def test_two_kinds_of_rows_take_turns() -> None:
    trainer = trainer_of("captured")
    sizes: Sizes = [(20, 1, 8), (9, 2, 8)]
    for optimiser in (Adam(), Momentum(), Adam()):
        looped = in_a_loop(listed_batches(sizes), optimiser)
        captured = train(trainer, packed_batches(sizes), optimiser)
        assert torch.allclose(looped.w, captured.w, rtol=0, atol=1e-11)
    assert len(captured_of(trainer).workspaces.by_kind) == 2


def test_many_models_are_tested_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Layout.of(MODULE).flatten(MODULE).repeat(3, 1)
    whole = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), torch.arange(50))
    monkeypatch.setattr(evaluation, "AT_ONCE", 21)
    in_parts = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), torch.arange(50))
    torch.testing.assert_close(in_parts, whole)
    assert in_parts.classes.shape == (3, 50)


def test_many_models_are_tested_as_each_alone() -> None:
    layout = Layout.of(MODULE)
    w = torch.stack([layout.flatten(MODULE) + 0.1 * k for k in range(3)])
    draw = seeded(12)
    samples_of_each = torch.stack([torch.randperm(50, generator=draw)[:11] for _ in range(3)])
    for index in (torch.arange(50), samples_of_each):
        together = evaluate_rows(row_outputs(MODULE), w, {}, Samples(X, Y), index)
        for k in range(3):
            layout.load(MODULE, w[k])
            row_index = index if index.dim() == 1 else index[k]
            alone = evaluate(MODULE, X[row_index], Y[row_index])
            torch.testing.assert_close(Answers(*[values[k] for values in together]), alone)


class Forgetful(nn.Module):
    """Notes on itself what it has seen."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        output: Tensor = MODULE(self.seen * 1)
        return output


@pytest.mark.parametrize("module", [MODULE, Forgetful()])
def test_chunks_side_by_side_are_the_same_figures(module: nn.Module) -> None:
    in_turn = evaluate(module, X, Y, 7)
    beside = evaluate(module, X, Y, 7, side_by_side=3)
    torch.testing.assert_close(beside, in_turn, rtol=0, atol=0)


class Replayed:
    """In place of a CUDA graph: takes the steps again."""

    def __init__(self, trainer: CapturedTrainer, workspace: Workspace, rows: int, count: int):
        self.trainer = trainer
        self.steps = (workspace, rows, count)

    def replay(self) -> None:
        self.trainer._take_steps(*self.steps)


@pytest.mark.parametrize(("failures", "captured_at_last"), [(0, True), (2, True), (99, False)])
def test_what_cannot_be_recorded_at_once_is_tried_again_and_then_taken_step_by_step(
    failures: int, captured_at_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_rows = []

    def record(trainer: CapturedTrainer, workspace: Workspace, rows: int, count: int) -> Replayed:
        recorded_rows.append(rows)
        trainer._take_steps(workspace, rows, 1)  # the warm-up leaves traces, which must be undone
        if len(recorded_rows) <= failures:
            raise RuntimeError("busy\nwith details")
        return Replayed(trainer, workspace, rows, count)

    monkeypatch.setattr(CapturedTrainer, "_record", record)
    sizes: Sizes = [(30, 2, 8), (7, 1, 8), (20, 3, 4)]
    trainer = trainer_of("captured")
    captured_of(trainer).capture = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = train(trainer, packed_batches(sizes), Adam())
    looped = in_a_loop(listed_batches(sizes), Adam())
    assert torch.allclose(looped.w, trained.w, rtol=0, atol=1e-11)
    assert captured_of(trainer).capture == captured_at_last
    expected = ["steps cannot be recorded as a CUDA graph and are taken one by one: busy"]
    if captured_at_last:
        expected = []
    assert [str(warning.message) for warning in caught] == expected
    assert set(recorded_rows) <= {1, 2, 3}  # a graph for each number of rows at work


def test_the_kernel_of_adam_is_for_gpus() -> None:
    w = torch.zeros(2, 3)
    assert not _fits_kernel(w, w, {"m": w})
