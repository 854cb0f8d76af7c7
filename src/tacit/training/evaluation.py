"""What models answer, sample by sample, so that any grouping of the samples costs one pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from tacit.core.rows import Rows, join, pick
from tacit.core.vectors import Layout
from tacit.training.batches import Samples
from tacit.training.channels import store_channels_last
from tacit.training.losses import USUAL, Loss, is_regression
from tacit.training.threads import map_in_threads

AT_ONCE = 32_768  # samples of all rows together; more would not be faster

RowAndBuffers = tuple[Tensor, Rows]  # a row (P,) and its buffers
# (K, P), buffers, (K, n, ...) -> (K, n, outputs)
RowOutputs = Callable[[Tensor, Rows, Tensor], Tensor]
Chunk = tuple[Tensor, Tensor]  # features and targets of some samples


class Answers(NamedTuple):
    """A model's answers to samples, and its losses on them."""

    losses: Tensor  # (n,)
    predicted: Tensor  # (n, classes) probabilities; in a regression (n,) numbers
    classes: Tensor  # (n,) the most likely ones; in a regression there are none, (0,)

    def hits(self, y: Tensor) -> Tensor:
        """Whether each sample was classified rightly, or its squared error. # (n,)"""
        if y.is_floating_point():
            return (self.predicted - y).square()
        return self.classes == y

    def on_host(self) -> Answers:
        return Answers(*[values.cpu() for values in self])

    def split(self, sizes: Sequence[int]) -> list[Answers]:
        """The answers to the first so many samples, to the next, and so on."""
        losses = self.losses.split(sizes)
        predicted = self.predicted.split(sizes)
        classes = [self.classes] * len(sizes)
        if len(self.classes):
            classes = list(self.classes.split(sizes))
        return [Answers(*values) for values in zip(losses, predicted, classes, strict=True)]


def join_answers(answers: Sequence[Answers], dim: int = 0) -> Answers:
    """The answers to one set of samples after another."""
    columns = zip(*answers, strict=True)
    return Answers(*[torch.cat(column, dim) for column in columns])


@torch.no_grad()
def evaluate(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    chunk: int = 1024,
    side_by_side: int = 1,
    *,
    loss: Loss = USUAL,
) -> Answers:
    """A model's answers to these samples, (n, ...) and (n,).

    `side_by_side` chunks are evaluated at a time, each in a thread.
    """
    store_channels_last(module.eval())
    chunks = list(zip(x.split(chunk), y.split(chunk), strict=True))
    if side_by_side > 1 and len(chunks) > 1:
        return join_answers(_evaluate_in_threads(module, chunks, side_by_side, loss))
    return join_answers([_evaluate_chunk(module, samples, loss) for samples in chunks])


def _evaluate_chunk(module: nn.Module, samples: Chunk, loss: Loss) -> Answers:
    x, y = samples
    output = module(x)
    if not len(y):
        return Answers(output.new_zeros(0), *read_output(output, y, loss))
    return Answers(loss(output, y), *read_output(output, y, loss))


def read_output(output: Tensor, y: Tensor, loss: Loss = USUAL) -> tuple[Tensor, Tensor]:
    """What a model's output (n, outputs) says: the second and third entries of `Answers`."""
    predicted = loss.predicted(output)
    if is_regression(output, y):
        return predicted, output.new_zeros(0, dtype=torch.int64)
    return predicted, output.argmax(-1)


def _evaluate_in_threads(
    module: nn.Module, chunks: Sequence[Chunk], threads: int, loss: Loss
) -> list[Answers]:
    """Chunks side by side, each with a copy of the model, which may store things on itself."""
    copies = [copy.deepcopy(module) for _ in range(threads - 1)]

    def evaluate_chunk(free_module: nn.Module, samples: Chunk) -> Answers:
        with torch.no_grad():  # every thread has a mode of its own
            return _evaluate_chunk(free_module, samples, loss)

    return list(map_in_threads([module, *copies], evaluate_chunk, chunks))


def row_outputs(module: nn.Module) -> RowOutputs:
    """What many models of one kind answer, in one batched program."""
    module = module.eval()
    layout = Layout.of(module)

    def answer(w: Tensor, buffers: Rows, x: Tensor) -> Tensor:
        output: Tensor = functional_call(module, (layout.unflatten(w), buffers), (x,))
        return output

    batched: Any = vmap(answer)
    return batched  # type: ignore[no-any-return]


@torch.no_grad()
def evaluate_rows(
    outputs: RowOutputs,
    w: Tensor,
    buffers: Rows,
    samples: Samples,
    index: Tensor,
    *,
    loss: Loss = USUAL,
) -> Answers:
    """As `evaluate`, for K models at once: every entry has K rows.

    An index of shape (n,) names the samples of all models, one of shape (K, n) those of each.
    """
    rows = len(w)
    size = max(1, AT_ONCE // rows)
    chunks = []
    for chunk in index.split(size, -1):
        x = samples.take(chunk)
        y = samples.y[chunk]
        if chunk.dim() == 1:
            x = x.expand(rows, *x.shape)
            y = y.expand(rows, *y.shape)
        output = outputs(w, buffers, x).flatten(0, 1)
        y = y.flatten(0, 1)
        predicted, classes = read_output(output, y, loss)
        by_row = (loss(output, y), predicted, classes)
        chunks.append(Answers(*[values.unflatten(0, (rows, -1)) for values in by_row]))
    return join_answers(chunks, 1)


def evaluate_in_turn(
    module: nn.Module,
    models: Sequence[RowAndBuffers],
    samples: Samples,
    indices: Sequence[Tensor] | None = None,
    *,
    loss: Loss = USUAL,
    side_by_side: int = 1,
) -> list[Answers]:
    """One model after another, each loaded into `module`.

    Model k is evaluated on the samples that `indices[k]` names, or without `indices` on all.
    """
    layout = Layout.of(module)
    answers = []
    for k, (row, buffers) in enumerate(models):
        layout.load(module, row, buffers)
        x = samples.x
        y = samples.y
        if indices is not None:
            x = samples.features(indices[k])
            y = samples.y[indices[k]]
        of_model = evaluate(module, x, y, side_by_side=side_by_side, loss=loss)
        answers.append(of_model.on_host())
    return answers


def evaluate_together(
    outputs: RowOutputs,
    models: Sequence[RowAndBuffers],
    samples: Samples,
    indices: Sequence[Tensor] | None = None,
    *,
    loss: Loss = USUAL,
) -> list[Answers]:
    """As `evaluate_in_turn`, all models at once."""
    w = torch.stack([row for row, _ in models])
    buffers = join([pick(values, None) for _, values in models])
    if indices is None:
        index = torch.arange(len(samples.y), device=samples.x.device)
        sizes = [len(samples.y)] * len(models)
    else:
        index = pad_sequence(list(indices), batch_first=True).to(samples.x.device)
        sizes = [len(model_index) for model_index in indices]
    if not index.shape[-1]:
        return [_no_answers_of(outputs, w, buffers, samples)] * len(models)
    together = evaluate_rows(outputs, w, buffers, samples, index, loss=loss).on_host()
    answers = []
    for k, size in enumerate(sizes):
        answers.append(Answers(*[values[k, :size] for values in together]))
    return answers


def _no_answers_of(outputs: RowOutputs, w: Tensor, buffers: Rows, samples: Samples) -> Answers:
    """The answers to no samples, in the form that this model's have."""
    first = torch.zeros(1, dtype=torch.int64, device=samples.x.device)
    answers = evaluate_rows(outputs, w, buffers, samples, first)
    return Answers(*[values[0, :0].cpu() for values in answers])
