"""One local step of many rows on a GPU, in milliseconds, by the way its convolutions are computed.

The steps are replayed as a graph: the CNN on 3 x 32 x 32 pictures, batches of 32, Adam, every row
with weights of its own. Ways: cuDNN's grouped convolutions (what vmap makes of them), the same in
channels-last memory, im2col with batched matrix products, that compiled by torch.compile, and our
Triton kernels. `--profile` lists our kernels by time.
Usage: python benchmarks/gpu_step.py [--rows 3 15 75] [--profile] [--no-compile]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.rows import Rows, columns
from tacit.core.vectors import Layout
from tacit.models.model import Cnn
from tacit.training.batches import Batch, Batches, Samples
from tacit.training.gradients import GradientFunction, Gradients, VmappedGradients
from tacit.training.kernel_network import KernelGradients
from tacit.training.optimisers import Adam
from tacit.training.row_trainer import RowTrainer
from tacit.training.sampling import Epochs
from tacit.training.trainer import Trained

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 32
# of a sample: forward, weights, and inputs but the first layer's
FLOP = 2 * (2 * 352_800 + 3 * 240_000 + 3 * 58_920)
MODULE = Cnn().make(SHAPE, CLASSES)
LAYOUT = Layout.of(MODULE)


def grouped(
    x: Tensor, w: Tensor, b: Tensor, format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    """One grouped convolution. # (K, B, C, H, W), (K, O, C, k, k) -> (K, B, O, H', W')"""
    rows = len(x)
    folded = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=format)
    out = functional.conv2d(
        folded, w.flatten(0, 1).contiguous(memory_format=format), b.flatten(), groups=rows
    )
    return out.unflatten(1, (rows, -1)).transpose(0, 1)


def im2col(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Patches times weights, as one batched matrix product."""
    rows, count, side = *x.shape[:2], x.shape[-1] - w.shape[-1] + 1
    patches = x.unfold(3, w.shape[-1], 1).unfold(4, w.shape[-1], 1)  # (K, B, C, H', W', k, k)
    patches = patches.permute(0, 1, 3, 4, 2, 5, 6).reshape(rows, count * side * side, -1)
    out = torch.baddbmm(b[:, None], patches, w.flatten(2).transpose(1, 2))
    return out.view(rows, count, side, side, -1).permute(0, 1, 4, 2, 3)


class ByAutograd:
    """The CNN with one way to convolve, and autograd for the rest."""

    def __init__(self, convolve: Callable[..., Tensor], compiled: bool = False) -> None:
        self.convolve = convolve
        self.loss = torch.compile(self._loss) if compiled else self._loss

    def __call__(
        self, w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        w = w.detach().requires_grad_()
        loss, right = self.loss(w, batch.x, batch.y, batch.column(w.device))
        (g,) = torch.autograd.grad(loss.sum(), w)
        return Gradients(g, loss.detach(), right, buffers)

    def _loss(self, w: Tensor, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        parameters = [
            values.view(-1, *shape)
            for values, shape in zip(w.split(LAYOUT.sizes, 1), LAYOUT.shapes, strict=True)
        ]
        for weight, bias in (parameters[0:2], parameters[2:4]):
            x = functional.relu(self.convolve(x, weight, bias))
            x = functional.max_pool2d(x.flatten(0, 1), 2).unflatten(0, x.shape[:2])
        x = x.flatten(2)
        for k in (4, 6, 8):
            weight, bias = parameters[k], parameters[k + 1]
            x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
            x = functional.relu(x) if k < 8 else x
        mask = torch.arange(y.shape[1], device=y.device) < counts
        losses = functional.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="none")
        right = ((x.argmax(2) == y) & mask).sum(1, keepdim=True).to(x.dtype)
        return (losses.view(y.shape) * mask).sum(1, keepdim=True) / counts, right


def train(trainer: RowTrainer, batches: list[Batches]) -> Trained:
    """Rows that start at the module's parameters, through their batches with Adam."""
    rows = len(batches)
    w = LAYOUT.flatten(MODULE).repeat(rows, 1).cuda()
    optimiser: Any = columns([Adam()] * rows, Adam, w)
    return trainer.train(w, batches, optimiser=optimiser, seeds=range(rows))


def batches_of(trainer: RowTrainer, rows: int, steps: int) -> list[Batches]:
    """The same batches for every row."""
    draw = torch.Generator().manual_seed(0)
    shard = torch.randperm(len(trainer.samples.y), generator=draw)[: steps * BATCH]
    return [trainer.draw_batches(Epochs(), shard, 1, BATCH, draw)] * rows


def measure(trainer: RowTrainer, rows: int, steps: int = 200) -> tuple[float, Tensor]:
    """Median milliseconds per step, and the first row's parameters after a few steps."""
    batches = batches_of(trainer, rows, steps)
    few = train(trainer, [row_batches.first(5) for row_batches in batches]).w[0]
    times = []
    for _ in range(5):
        train(trainer, batches)  # the first captures
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        train(trainer, batches)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / steps)
    if trainer.captured is not None and not trainer.captured.capture:
        print(f"  (not captured: {trainer.captured.capture_error.splitlines()[0]})")
    return statistics.median(times), few


def triton(samples: Samples) -> RowTrainer:
    trainer = RowTrainer(MODULE, samples, device="cuda")
    assert isinstance(trainer.gradient, KernelGradients), "Triton is not installed"
    return trainer


def ways(samples: Samples, compiled: bool) -> dict[str, RowTrainer]:
    last = torch.channels_last
    gradients: dict[str, GradientFunction] = {
        "vmap (cuDNN, grouped)": VmappedGradients(MODULE.to("cuda")),
        "grouped, channels-last": ByAutograd(lambda x, w, b: grouped(x, w, b, last)),
        "im2col, batched products": ByAutograd(im2col),
    }
    if compiled:
        gradients["im2col, torch.compile"] = ByAutograd(im2col, compiled=True)
    trainers = {
        name: RowTrainer(MODULE, samples, device="cuda", gradient=gradient)
        for name, gradient in gradients.items()
    }
    return {**trainers, "Triton": triton(samples)}


def compare(rows: list[int], samples: Samples, compiled: bool) -> None:
    print(f"{'way':<28}" + "".join(f"{f'{k} rows':>10}" for k in rows) + f"{'differs by':>14}")
    expected: list[Tensor] = []
    for name, trainer in ways(samples, compiled).items():
        figures = [measure(trainer, k) for k in rows]
        after = [few for _, few in figures]
        expected = expected or after
        pairs = zip(after, expected, strict=True)
        off = max(float((few - first).abs().max()) for few, first in pairs)
        times = "".join(f"{ms:>10.3f}" for ms, _ in figures)
        print(f"{name:<28}{times}{off:>14.1e}", flush=True)
    rates = ", ".join(f"{FLOP * BATCH * k / 1e9:.2f} GFLOP" for k in rows)
    print(f"arithmetic of a step: {rates}")


def profile(rows: int, samples: Samples) -> None:
    """Our kernels by time, one step after another without a graph."""
    trainer = triton(samples)
    assert trainer.captured is not None
    trainer.captured.capture = False
    batches = batches_of(trainer, rows, 20)
    train(trainer, batches)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        train(trainer, batches)
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda event: -event.device_time_total)
    print(f"kernels of a step, {rows} rows, microseconds (calls)")
    for event in events[:24]:
        print(f"  {event.device_time_total / 20:>8.1f}  {event.count / 20:>5.1f}  {event.key[:70]}")
    print(f"  {sum(event.device_time_total for event in events) / 20:>8.1f}  in all")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[3, 15, 75])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch finds no GPU here")
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (50_000, *SHAPE), generator=draw, dtype=torch.uint8)
    samples = Samples(x.cuda(), torch.randint(0, CLASSES, (len(x),), generator=draw).cuda(), 255.0)
    machine = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    print(f"{machine}, batch {BATCH}, Adam, TF32; ms per step")
    compare(options.rows, samples, not options.no_compile)
    if options.profile:
        for rows in options.rows:
            profile(rows, samples)


if __name__ == "__main__":
    main()
