"""Trains and tests rows: models of one kind, each a row of numbers, on samples that they share.

A `RowTrainer` chooses how rows are computed: one by one, many at once, in captured graphs, or by
kernels of our own. Its callers see no difference but in speed.

>>> from tacit.core.rows import columns
>>> from tacit.training.optimisers import SGD
>>> from tacit.training.sampling import Epochs
>>> module = nn.Linear(2, 2)
>>> trainer = RowTrainer(module, Samples(torch.rand(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])))
>>> w = trainer.layout.flatten(module).repeat(3, 1)
>>> generator = torch.Generator().manual_seed(0)
>>> batches = trainer.draw_batches(Epochs(), torch.arange(6), 2, 4, generator)
>>> trained = trainer.train(w, [batches] * 3, optimiser=columns([SGD()] * 3, SGD, w))
>>> trained.w.shape, trained.work.steps.flatten().tolist()
(torch.Size([3, 6]), [4.0, 4.0, 4.0])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Batches, ListedBatches, PackedBatches, Samples, gather
from tacit.training.captured import CapturedTrainer
from tacit.training.evaluation import (
    Answers,
    RowAndBuffers,
    evaluate_in_turn,
    evaluate_together,
)
from tacit.training.gradients import GradientForm, GradientFunction
from tacit.training.kernel_layers import PROGRAMS
from tacit.training.losses import USUAL, Loss, LossFunction, checked
from tacit.training.optimisers import Optimiser
from tacit.training.row_module import RowModule
from tacit.training.sampling import Sampling
from tacit.training.threads import Item, Result, map_in_threads
from tacit.training.torch_modes import computing_on, generator_seeded
from tacit.training.trainer import LoopState, Rule, Trained, begin_work, draws_from, train

BatchForm = TypeVar("BatchForm", PackedBatches, ListedBatches)
FULL = 512  # samples of a full gradient that are taken at a time on a GPU
ANSWERED = 1024  # samples that one model answers at a time


class RowTrainer:
    """Rows of one module, on samples that they share.

    `form` and `at_once`, the number of rows trained together, are chosen by the device if they are
    not given. A `gradient` function takes the place of the module's gradient, and a `loss` that of
    `losses.USUAL`. With a gradient function, `module` may be None; then models cannot be tested.
    """

    def __init__(
        self,
        module: nn.Module | None,
        samples: Samples,
        *,
        device: str | torch.device = "cpu",
        form: GradientForm | None = None,
        at_once: int | None = None,
        gradient: GradientFunction | None = None,
        loss: LossFunction | None = None,
        tf32: bool = True,
        side_by_side: int = 1,
    ) -> None:
        if module is None and gradient is None:
            raise ValueError("expected a module, or a gradient function of your own; both are None")
        self.device = torch.device(device)
        self.tf32 = tf32
        self.side_by_side = side_by_side
        self.form: GradientForm = form or _usual_form(self.device)
        self.loss: Loss | None = None if loss is None else checked(loss)
        self.own_gradient = gradient is not None
        self._in_thread = False  # whether other trainers train in other threads at the same time
        self._clones: list[RowTrainer] = []
        with self.computing():
            self._row_module = self._make_row_module(module, samples)
            self.gradient = gradient or self._required_module().make_gradient(self.loss)
            self.samples = self.prepared(samples)
        self.captured: CapturedTrainer | None = None
        if self._can_capture():
            on_gpu = self.device.type != "cpu"
            self.captured = CapturedTrainer(self.gradient, self.samples, capture=on_gpu)
        self.at_once = self._rows_at_once(at_once)

    @property
    def module(self) -> nn.Module:
        """A copy of the module that was given, with the parameters that were loaded last."""
        return self._required_module().module

    @property
    def layout(self) -> Layout:
        """Where the module's parameters lie in a row."""
        return self._required_module().layout

    @property
    def draws(self) -> bool:
        """Whether the module draws numbers from torch's generator while it trains."""
        return self._row_module is not None and self._row_module.draws

    def computing(self) -> AbstractContextManager[None]:
        """Where training happens: on a GPU it is the current device, with TF32 as asked for."""
        return computing_on(self.device, self.tf32)

    def prepared(self, samples: Samples) -> Samples:
        """Other samples, such as a test set, in the form in which this trainer reads its own."""
        samples = samples.to(self.device)
        if self.form == "loop":
            return samples.plain()
        # kernels read numbers one after another
        samples = replace(samples, x=samples.x.contiguous(), y=samples.y.contiguous())
        if not self._can_capture():
            return samples.plain()
        if samples.is_plain:
            samples = Samples.compact(samples.x, samples.y)
        network = None if self._row_module is None else self._row_module.network
        if network is None or not network.packs or samples.packed:
            return samples
        return samples.pack(network.pack)

    def on(self, samples: Samples, *, usual_loss: bool = False) -> RowTrainer:
        """A trainer of the same model on other samples, such as public ones.

        It takes steps one by one. Its gradient is that of the same loss, or of the `usual_loss`.
        """
        trainer = copy.copy(self)
        if usual_loss and self.loss is not None and not self.own_gradient:
            trainer.loss = None
            trainer.gradient = self._required_module().make_gradient(None)
        trainer.captured = None
        trainer._clones = []
        trainer.samples = samples.to(self.device).plain()
        return trainer

    def draw_batches(
        self,
        sampling: Sampling,
        shard: Tensor,
        epochs: int,
        batch_size: int | None,
        generator: torch.Generator,
    ) -> Batches:
        """A row's batches, drawn from its samples, in the form that `train` wants."""
        if self.captured is not None:
            return sampling.packed(shard.cpu(), epochs, batch_size, generator)
        shard = shard.to(self.device)
        return ListedBatches(sampling.batches(shard, epochs, batch_size, generator))

    def train(
        self,
        w: Tensor,
        batches: Sequence[Batches],
        *,
        optimiser: Optimiser,
        rule: Rule | None = None,
        start: Rows | None = None,
        sent: Rows | None = None,
        mine: Rows | None = None,
        buffers: Rows | None = None,
        samples: Tensor | None = None,
        epochs: Tensor | None = None,
        full_gradient: Tensor | None = None,
        full_of: Sequence[Tensor] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Trained:
        """Takes rows w (K, P) through their batches.

        On a GPU the work may still be going on when this returns. `optimiser` is a `columns` view,
        one value per row. `rule` corrects gradients before they are applied, and sees what was
        `sent` to a row and what is `mine`, its memory. `start` is the optimiser's state before the
        first step. `samples` and `epochs`, (K, 1), are what the rule may know of the work. A rule
        that needs the full gradient at sent["x"] is either given it or the samples that it is
        `full_of`. With `seeds`, one per row, all numbers that are drawn depend on them alone.
        """
        if len(batches) != len(w):
            raise ValueError(f"batches: expected {len(w)}, those of every row, got {len(batches)}")
        seeds = None if seeds is None else [int(seed) for seed in seeds]
        work = begin_work(
            w, optimiser, start, samples=samples, epochs=epochs, full_gradient=full_gradient
        )
        zero = work.steps
        loop_state = LoopState(
            w=w,
            work=work,
            rule=rule,
            sent=sent or {},
            mine=mine or {},
            buffers=buffers or {},
            loss=zero,
            hits=zero,
            seen=zero,
            seeds=self._seed_column(seeds, len(w)),
        )
        with self.computing():
            if not self.draws or len(w) == 1 or seeds is None:
                return self._train_rows(loop_state, batches, full_of, seeds)
            return self._train_one_by_one(loop_state, batches, full_of, seeds)

    def full_gradient(
        self,
        x: Tensor,
        shards: Sequence[Tensor],
        *,
        buffers: Rows | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Tensor:
        """Each row's gradient at x (K, P) over all samples of its shard. # (K, P)"""
        with self.computing(), self._seeded(seeds):
            return self._full_gradients(x, shards, buffers or {}, self._seed_column(seeds, len(x)))

    def test(
        self,
        models: Sequence[RowAndBuffers],
        samples: Samples,
        indices: Sequence[Tensor] | None = None,
    ) -> list[Answers]:
        """Each model, a row (P,) and its buffers, on all samples or on those that its index names.

        The answers are in the host's memory. Samples must be in the form that `prepared` returns.
        """
        loss = self.loss or USUAL
        with self.computing():
            if not models:
                return []
            outputs = self._required_module().outputs
            if outputs is not None:
                return evaluate_together(outputs, models, samples, indices, loss=loss)
            return evaluate_in_turn(
                self.module, models, samples, indices, loss=loss, side_by_side=self.side_by_side
            )

    @torch.no_grad()
    def outputs(self, w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        """What one model, a row (P,), answers. # (n, ...) -> (n, outputs)"""
        self.layout.load(self.module, w, buffers)
        self.module.eval()
        with self.computing():
            return torch.cat([self.module(chunk) for chunk in x.split(ANSWERED)])

    def spread(
        self, task: Callable[[RowTrainer, Item], Result], items: Sequence[Item], *, apart: bool
    ) -> Iterator[Result]:
        """What `task` makes of each item, in order.

        `apart` says that the items share nothing. Then several are worked on at a time, where that
        is possible: in threads, each with a trainer of its own.
        """
        if apart and self._can_use_threads():
            yield from map_in_threads(self._thread_trainers(), task, items)
            return
        for item in items:
            yield task(self, item)

    def _can_use_threads(self) -> bool:
        """Whether threads do not disturb each other.

        The user's gradient function may keep things, and all threads share torch's generator.
        """
        independent = self.form == "loop" and not self.draws and not self.own_gradient
        return independent and self.side_by_side > 1 and not self._in_thread

    def _thread_trainers(self) -> list[RowTrainer]:
        """A trainer for each thread, with its own copy of the model."""
        while len(self._clones) < self.side_by_side:
            clone = copy.copy(self)
            clone._row_module = self._required_module().copied()
            clone.gradient = self._required_module().make_gradient(self.loss)
            clone.side_by_side = 1
            clone._in_thread = True
            clone._clones = []
            self._clones.append(clone)
        return self._clones

    def _train_rows(
        self,
        loop_state: LoopState,
        batches: Sequence[Batches],
        full_of: Sequence[Tensor] | None,
        seeds: Sequence[int] | None,
    ) -> Trained:
        """All rows together; torch's generator has the first row's seed."""
        with self._seeded(seeds):
            if full_of is not None:
                loop_state = self._with_full_gradient(loop_state, full_of)
            if self.captured is not None:
                packed = [_in_form(PackedBatches, row_batches) for row_batches in batches]
                return Trained.of(self.captured.train(loop_state, packed))
            listed = [_in_form(ListedBatches, row_batches).steps for row_batches in batches]
            samples = self.samples
            return Trained.of(train(loop_state, listed, samples.x, samples.y, self.gradient))

    def _with_full_gradient(self, loop_state: LoopState, shards: Sequence[Tensor]) -> LoopState:
        full_gradient = self._full_gradients(
            loop_state.sent["x"], shards, loop_state.buffers, loop_state.seeds
        )
        return replace(loop_state, work=replace(loop_state.work, full_gradient=full_gradient))

    def _train_one_by_one(
        self,
        loop_state: LoopState,
        batches: Sequence[Batches],
        full_of: Sequence[Tensor] | None,
        seeds: Sequence[int],
    ) -> Trained:
        """Rows that draw from torch's generator, each after its own seed."""
        rows = []
        for k, seed in enumerate(seeds):
            row = pick(loop_state, slice(k, k + 1))
            shard = None if full_of is None else [full_of[k]]
            rows.append(self._train_rows(row, [batches[k]], shard, [seed]))
        trained: Trained = join(rows)
        return trained

    def _full_gradients(
        self, x: Tensor, shards: Sequence[Tensor], buffers: Rows, seeds: Tensor | None
    ) -> Tensor:
        if self.captured is None:
            indices = [shard.to(x.device) for shard in shards]
            batch = gather(self.samples.x, self.samples.y, indices)
            return self.gradient(x, buffers, batch, *draws_from(seeds, -1)).g
        total = torch.zeros_like(x)
        counts = x.new_tensor([[max(len(shard), 1)] for shard in shards])
        longest = max(map(len, shards))
        # the mean over all samples is the mean over chunks, weighted by their sizes
        for number, first in enumerate(range(0, longest, FULL)):
            chunks = [shard[first : first + FULL] for shard in shards]
            sizes = x.new_tensor([[len(chunk)] for chunk in chunks])
            draws = draws_from(seeds, -1 - number)
            gradients = self.gradient(x, buffers, self.samples.batch(chunks), *draws)
            total += gradients.g * (sizes / counts)
        return total

    def _seeded(self, seeds: Sequence[int] | None) -> AbstractContextManager[None]:
        """Torch's generator with the first row's seed; threads share it, and none of them draws."""
        if seeds is None or self._in_thread:
            return nullcontext()
        return generator_seeded(seeds[0], self.device)

    def _seed_column(self, seeds: Sequence[int] | None, rows: int) -> Tensor | None:
        """The seeds for the user's gradient function; tacit's functions do not draw. # (K,)"""
        if seeds is not None and len(seeds) != rows:
            raise ValueError(f"seeds: expected {rows}, one per row, got {len(seeds)}")
        if not self.own_gradient:
            return None
        if seeds is None:
            raise ValueError(
                "seeds: expected one per row, since a gradient function of your own may draw"
            )
        return torch.tensor(seeds, dtype=torch.int64, device=self.device)

    def _make_row_module(self, module: nn.Module | None, samples: Samples) -> RowModule | None:
        if module is None:
            return None
        first_two = replace(samples, x=samples.x[:2], y=samples.y[:2])
        x = first_two.to(self.device).plain().x
        return RowModule(module, x, self.form, kernels=not self.own_gradient)

    def _required_module(self) -> RowModule:
        if self._row_module is None:
            raise ValueError("this trainer has a gradient function and no module")
        return self._row_module

    def _can_capture(self) -> bool:
        """Whether steps can be captured; a gradient function is expected to allow it."""
        if self._row_module is None:
            return self.form == "captured"
        return self._row_module.can_be_captured

    def _rows_at_once(self, asked: int | None) -> int:
        if self.draws:
            return 1
        usual = 1 if self.form == "loop" else PROGRAMS
        return min(asked or usual, PROGRAMS)


def _usual_form(device: torch.device) -> GradientForm:
    return "loop" if device.type == "cpu" else "captured"


def _in_form(form: type[BatchForm], batches: Any) -> BatchForm:
    if not isinstance(batches, form):
        raise ValueError(
            "batches: expected those that this trainer's draw_batches() makes, "
            f"{form.__name__}; got {type(batches).__name__}"
        )
    return batches
