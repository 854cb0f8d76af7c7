"""Trains and tests rows: models of one kind, each a row of numbers, on samples that they share.

A `RowTrainer` chooses how rows are computed (one by one, many at once, in captured graphs, by kernels of our own);
who uses it sees no difference but in speed.

>>> from tacit.core.rows import columns
>>> from tacit.training.optimisers import SGD
>>> from tacit.training.sampling import Epochs
>>> module = nn.Linear(2, 2)
>>> trainer = RowTrainer(module, Samples(torch.rand(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])))
>>> w = trainer.layout.flatten(module).repeat(3, 1)
>>> batches = trainer.draw_batches(Epochs(), torch.arange(6), 2, 4, torch.Generator().manual_seed(0))
>>> trained = trainer.train(w, [batches] * 3, optimiser=columns([SGD()] * 3, SGD, w))
>>> trained.w.shape, trained.work.steps.flatten().tolist()
(torch.Size([3, 6]), [4.0, 4.0, 4.0])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Batches, ListedBatches, PackedBatches, Samples, gather
from tacit.training.captured import CapturedTrainer
from tacit.training.evaluation import (
    Figures,
    Model,
    RowOutputs,
    evaluate_in_turn,
    evaluate_together,
    row_outputs,
)
from tacit.training.gradients import Form, GradientFunction, has_statistics, row_gradients
from tacit.training.kernel_network import PROGRAMS, KernelGradients, KernelNetwork, read
from tacit.training.losses import Loss, checked, losses
from tacit.training.optimisers import Optimiser
from tacit.training.sampling import Sampling
from tacit.training.torch_modes import computing_on, draws_numbers, generator_seeded
from tacit.training.trainer import LoopState, Rule, Trained, begin_work, draws_from, train

Item = TypeVar("Item")
Result = TypeVar("Result")
Kind = TypeVar("Kind", PackedBatches, ListedBatches)
FULL = 512  # samples of a full gradient that are taken at a time on a GPU
ANSWERED = 1024  # samples that one model answers at a time


class RowTrainer:
    """Rows of one module, on samples that they share.

    `form` and `at_once` (rows trained together) follow from the device unless given. A `gradient` function and a `loss`
    of one's own take the place of the module's gradient and of `losses`; with such a function, `module` may be None,
    and there is nothing to test.
    """

    def __init__(
        self,
        module: nn.Module | None,
        samples: Samples,
        *,
        device: str | torch.device = "cpu",
        form: Form | None = None,
        at_once: int | None = None,
        gradient: GradientFunction | None = None,
        loss: Loss | None = None,
        tf32: bool = True,
        side_by_side: int = 1,
    ) -> None:
        if module is None and gradient is None:
            raise ValueError("expected a module, or a gradient function of your own; both are None")
        self.device, self.tf32, self.side_by_side = torch.device(device), tf32, side_by_side
        on_gpu = self.device.type != "cpu"
        self.form: Form = form or ("captured" if on_gpu else "loop")
        self.loss = None if loss is None else checked(loss)
        self.own_gradient = gradient is not None
        self.beside = False  # whether other threads train at the same time
        self._clones: list[RowTrainer] = []
        self._network: KernelNetwork | None = None
        self._row_outputs: RowOutputs | None = None
        self._module = None if module is None else copy.deepcopy(module).to(self.device)
        self._layout = None if module is None else Layout.of(module)
        self.draws = self._module is not None and draws_numbers(
            self._module, self._first_two(samples)
        )
        self._packs = self.form == "captured" and not self.draws and not self._has_statistics()
        with self.computing():
            if self.form != "loop":
                self._batch_rows(samples)
            self.gradient = gradient or self._make_gradient()
            self.samples = self.prepared(samples)
        self.captured = (
            CapturedTrainer(self.gradient, self.samples, capture=on_gpu) if self._packs else None
        )
        usual = 1 if self.form == "loop" else PROGRAMS
        self.at_once = 1 if self.draws else min(at_once or usual, PROGRAMS)

    @property
    def module(self) -> nn.Module:
        """A copy of the module that was given, with the parameters that were loaded into it last."""
        if self._module is None:
            raise ValueError("this trainer has a gradient function and no module")
        return self._module

    @property
    def layout(self) -> Layout:
        """Where the module's parameters lie in a row."""
        if self._layout is None:
            raise ValueError("this trainer has a gradient function and no module")
        return self._layout

    def computing(self) -> AbstractContextManager[None]:
        """Where training happens: on a GPU, with that device as the current one and TF32 as asked."""
        return computing_on(self.device, self.tf32)

    def prepared(self, samples: Samples) -> Samples:
        """Other samples, such as a test set, in the form in which this trainer reads its own."""
        here = self._here(samples)
        if self.form == "loop":
            return _plain(here)
        here = replace(
            here, x=here.x.contiguous(), y=here.y.contiguous()
        )  # kernels read one after another
        if not self._packs:
            return _plain(here)
        if _is_plain(here):
            here = Samples.compact(here.x, here.y)
        if self._network is None or not self._network.packs or here.packed:
            return here
        return here.pack(self._network.pack)

    def on(self, samples: Samples) -> RowTrainer:
        """The same model and gradient on other samples, such as public ones, with steps taken one by one."""
        other = copy.copy(self)
        other.captured, other._clones = None, []
        other.samples = _plain(self._here(samples))
        return other

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
        return ListedBatches(sampling.batches(shard.to(self.device), epochs, batch_size, generator))

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
        """Takes rows w (K, P) through their batches; on a GPU the work may still be going on when this returns.

        `optimiser` is a `columns` view, one value per row. `rule` corrects gradients before they are applied, and sees
        what was `sent` to a row and what is `mine`, its memory. `start` is the optimiser's state before the first step.
        `samples` and `epochs`, (K, 1), are what the rule may know of the work. Rules that need the full gradient at
        sent["x"] are given it, or the samples that it is `full_of`. With `seeds`, one per row, whatever is drawn
        depends on them alone.
        """
        if len(batches) != len(w):
            raise ValueError(f"batches: expected {len(w)}, those of every row, got {len(batches)}")
        seeds = None if seeds is None else [int(seed) for seed in seeds]
        sent, mine, buffers = sent or {}, mine or {}, buffers or {}
        work = begin_work(
            w, optimiser, start, samples=samples, epochs=epochs, full_gradient=full_gradient
        )
        zero = work.steps
        block = LoopState(
            w, work, rule, sent, mine, buffers, zero, zero, zero, self._seed_column(seeds, len(w))
        )
        with self.computing():
            if not self.draws or len(w) == 1 or seeds is None:
                return self._trained(block, batches, full_of, seeds)
            return self._one_by_one(block, batches, full_of, seeds)

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
        self, models: Sequence[Model], samples: Samples, places: Sequence[Tensor] | None = None
    ) -> list[Figures]:
        """Each model, a row (P,) and its buffers, on all samples or those at its `places`.

        What comes back is each sample's loss and hit, in the host's memory. Samples are in the form of `prepared`.
        """
        loss = self.loss or losses
        with self.computing():
            if not models:
                return []
            if self._row_outputs is not None:
                return evaluate_together(self._row_outputs, models, samples, places, loss=loss)
            return evaluate_in_turn(
                self.module, models, samples, places, loss=loss, beside=self.side_by_side
            )

    @torch.no_grad()
    def outputs(self, w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        """What one model, a row (P,), answers. # (n, ...) -> (n, outputs)"""
        self.layout.load(self.module, w, buffers)
        self.module.eval()
        with self.computing():
            return torch.cat([self.module(chunk) for chunk in x.split(ANSWERED)])

    def spread(
        self, work: Callable[[RowTrainer, Item], Result], items: Sequence[Item], *, apart: bool
    ) -> Iterator[Result]:
        """What `work` makes of each item, in order; several at a time in threads where that pays and can be done.

        `apart` says that the items share nothing. Then each thread works with a trainer of its own.
        """
        if not (apart and self._can_work_beside()):
            for item in items:
                yield work(self, item)
            return
        free: SimpleQueue[RowTrainer] = SimpleQueue()
        for clone in self._beside_each_other():
            free.put(clone)

        def work_beside(item: Item) -> Result:
            trainer = free.get()
            try:
                return work(trainer, item)
            finally:
                free.put(trainer)

        with ThreadPoolExecutor(self.side_by_side) as threads:
            yield from threads.map(work_beside, items)

    def _can_work_beside(self) -> bool:
        """A gradient function of the user's own may keep things, and torch's generator is one for all threads."""
        simple = self.form == "loop" and not self.draws and not self.own_gradient
        return simple and self.side_by_side > 1 and not self.beside

    def _beside_each_other(self) -> list[RowTrainer]:
        """A trainer for each thread, with a gradient function of its own."""
        while len(self._clones) < self.side_by_side:
            clone = copy.copy(self)
            clone._module = copy.deepcopy(self._module)
            clone.gradient, clone.beside, clone.side_by_side = self._make_gradient(), True, 1
            clone._clones = []
            self._clones.append(clone)
        return self._clones

    def _trained(
        self,
        block: LoopState,
        batches: Sequence[Batches],
        full_of: Sequence[Tensor] | None,
        seeds: Sequence[int] | None,
    ) -> Trained:
        with self._seeded(seeds):
            if full_of is not None:
                block = self._with_full_gradient(block, full_of)
            if self.captured is not None:
                packed = [_of_kind(PackedBatches, plan) for plan in batches]
                return Trained.of(self.captured.train(block, packed))
            plans = [_of_kind(ListedBatches, plan).steps for plan in batches]
            return Trained.of(train(block, plans, self.samples.x, self.samples.y, self.gradient))

    def _with_full_gradient(self, block: LoopState, shards: Sequence[Tensor]) -> LoopState:
        full = self._full_gradients(block.sent["x"], shards, block.buffers, block.seeds)
        return replace(block, work=replace(block.work, full_gradient=full))

    def _one_by_one(
        self,
        block: LoopState,
        batches: Sequence[Batches],
        full_of: Sequence[Tensor] | None,
        seeds: Sequence[int],
    ) -> Trained:
        """Rows that draw from torch's generator, each after its own seed."""
        rows = []
        for k, seed in enumerate(seeds):
            shard = None if full_of is None else [full_of[k]]
            rows.append(self._trained(pick(block, slice(k, k + 1)), [batches[k]], shard, [seed]))
        joined: Trained = join(rows)
        return joined

    def _full_gradients(
        self, x: Tensor, shards: Sequence[Tensor], buffers: Rows, seeds: Tensor | None
    ) -> Tensor:
        samples = self.samples
        if self.captured is None:
            batch = gather(samples.x, samples.y, [shard.to(x.device) for shard in shards])
            return self.gradient(x, buffers, batch, *draws_from(seeds, -1)).g
        total = torch.zeros_like(x)
        counts = x.new_tensor([[max(len(shard), 1)] for shard in shards])
        longest = max(map(len, shards))
        for chunk, first in enumerate(
            range(0, longest, FULL)
        ):  # the mean over all is the mean of parts, weighted
            chunks = [shard[first : first + FULL] for shard in shards]
            sizes = x.new_tensor([[len(part)] for part in chunks])
            gradients = self.gradient(
                x, buffers, samples.batch(chunks), *draws_from(seeds, -1 - chunk)
            )
            total += gradients.g * (sizes / counts)
        return total

    def _seeded(self, seeds: Sequence[int] | None) -> AbstractContextManager[None]:
        """Torch's generator with the first row's seed. Threads share that generator, and none of them draws."""
        if seeds is None or self.beside:
            return nullcontext()
        return generator_seeded(seeds[0], self.device)

    def _seed_column(self, seeds: Sequence[int] | None, rows: int) -> Tensor | None:
        """The seeds for gradient functions of the user's own; tacit's do not draw. # (K,)"""
        if seeds is not None and len(seeds) != rows:
            raise ValueError(f"seeds: expected {rows}, one per row, got {len(seeds)}")
        if not self.own_gradient:
            return None
        if seeds is None:
            raise ValueError(
                "seeds: expected one per row, since a gradient function of your own may draw"
            )
        return torch.tensor(seeds, dtype=torch.int64, device=self.device)

    def _make_gradient(self) -> GradientFunction:
        if self._network is not None:
            return KernelGradients(self._network, self.loss)
        return row_gradients(self.module, "loop" if self.form == "loop" else "vmap", self.loss)

    def _batch_rows(self, samples: Samples) -> None:
        """Many rows at once: by the network's own kernels, where it has any."""
        if self._module is None:
            return
        self._row_outputs = row_outputs(copy.deepcopy(self.module))
        floats = samples.x.dtype == torch.float32 or samples.scale != 1.0
        if self.device.type == "cpu" or not self._packs or not floats or self.own_gradient:
            return
        x = self._first_two(samples)
        network = read(self.module, x.shape[1:])
        if network is not None and self._answers_alike(network, x):
            self._network, self._row_outputs = network, network.answers

    @torch.no_grad()
    def _answers_alike(self, network: KernelNetwork, x: Tensor) -> bool:
        """Whether the network answers as the module does."""
        w = self.layout.flatten(self.module)[None]
        ours = network.outputs(w, network.pack(x)[None])[0]
        return torch.allclose(
            ours, self.module.eval()(x), rtol=1e-2, atol=5e-3
        )  # TF32 has three digits

    def _first_two(self, samples: Samples) -> Tensor:
        head = replace(samples, x=samples.x[:2], y=samples.y[:2])
        return _plain(self._here(head)).x

    def _here(self, samples: Samples) -> Samples:
        return replace(samples, x=samples.x.to(self.device), y=samples.y.to(self.device))

    def _has_statistics(self) -> bool:
        return self._module is not None and has_statistics(self._module)


def _is_plain(samples: Samples) -> bool:
    """Whether samples are as the data set has them: neither bytes nor packed pictures."""
    return samples.scale == 1.0 and not samples.packed


def _plain(samples: Samples) -> Samples:
    return samples if _is_plain(samples) else Samples(samples.features(slice(None)), samples.y)


def _of_kind(kind: type[Kind], batches: Any) -> Kind:
    if not isinstance(batches, kind):
        given = type(batches).__name__
        raise ValueError(
            f"batches: expected those that this trainer's draw_batches() makes, {kind.__name__}; got {given}"
        )
    return batches
