"""Tests many models, one after another on a CPU and all at once on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.core.rows import Rows, join, pick
from tacit.training.batches import Samples
from tacit.training.evaluation import evaluate, evaluate_rows

if TYPE_CHECKING:
    from tacit.simulation.kinds.horizontal import Simulation

Model = tuple[Tensor, Rows]  # a row and its buffers
Figures = tuple[Tensor, Tensor]  # each sample's loss and hit, in the host's memory


def try_models(
    simulation: Simulation, models: Sequence[Model], samples: Samples, places: Sequence[Tensor] | None = None
) -> list[Figures]:
    """Each model on its own samples, those at its `places`, or each on all of them."""
    if not models:
        return []
    if simulation.outputs_of_rows is None:
        parts: list[Tensor | slice] = [slice(None)] * len(models) if places is None else list(places)
        return [_one(simulation, model, samples, part) for model, part in zip(models, parts, strict=True)]
    device = samples.x.device
    w = torch.stack([row for row, _ in models])
    buffers = join([pick(own, None) for _, own in models])
    if places is None:
        index, sizes = torch.arange(len(samples.y), device=device), [len(samples.y)] * len(models)
    else:
        index, sizes = torch.nn.utils.rnn.pad_sequence(list(places), batch_first=True), [len(part) for part in places]
        if not index.shape[1]:
            return [(w.new_zeros(0).cpu(), w.new_zeros(0).cpu())] * len(models)
    found = evaluate_rows(simulation.outputs_of_rows, w, buffers, samples, index.to(device))
    loss, hit = (part.cpu() for part in found)
    return [(loss[k, :size], hit[k, :size]) for k, size in enumerate(sizes)]


def _one(simulation: Simulation, model: Model, samples: Samples, part: Tensor | slice) -> Figures:
    simulation.layout.load(simulation.module, *model)
    x, y = (samples.x, samples.y) if part == slice(None) else (samples.features(part), samples.y[part])
    loss, hit = evaluate(simulation.module, x, y, beside=simulation.side_by_side)
    return loss.cpu(), hit.cpu()
