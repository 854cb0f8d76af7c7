"""The names of torch that are not public, all here, each with a public way to do the same.

They are looked up when this module is imported. Where a later torch has dropped a name, its lookup
is None and the public way is used: slower, and equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

FOREACH_COPY: Any = getattr(torch, "_foreach_copy_", None)
ENGINE: Any = getattr(Variable, "_execution_engine", None)
FUSED_ADAM: Any = getattr(torch, "_fused_adam_", None)
BATCH_NORM: Any = getattr(nn.modules.batchnorm, "_BatchNorm", None)
DROPOUT: Any = getattr(nn.modules.dropout, "_DropoutNd", None)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")

LATE = 1e30  # a step so late that beta^t is 0 for any beta below 1
BATCH_NORMS: tuple[type[nn.Module], ...] = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.LazyBatchNorm1d,
    nn.LazyBatchNorm2d,
    nn.LazyBatchNorm3d,
)
DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies every source into its target."""
    if FOREACH_COPY is not None:
        FOREACH_COPY(targets, sources)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def run_backward(loss: Tensor, gradient: Tensor) -> None:
    """What loss.backward(gradient) calls, without its checks.

    They take a tenth of a small model's step.
    """
    if ENGINE is None:
        torch.autograd.backward((loss,), (gradient,))
        return
    ENGINE.run_backward(
        (loss,),
        (gradient,),
        False,  # keep_graph
        False,  # create_graph
        (),  # inputs: all leaves
        allow_unreachable=True,
        accumulate_grad=True,
    )


def step_adam(
    w: Tensor, g: Tensor, m: Tensor, v: Tensor, *, lr: float, beta1: float, beta2: float, eps: float
) -> None:
    """One step of Adam in place, with means that need no correction for their bias."""
    if FUSED_ADAM is None:
        m.lerp_(g, 1 - beta1)
        v.lerp_(g * g, 1 - beta2)
        w.addcdiv_(m, v.sqrt().add_(eps), value=-lr)
        return
    # torch's kernel does all of it. In a step as late as this it corrects no bias.
    FUSED_ADAM(
        [w],
        [g.contiguous()],
        [m],
        [v],
        [],  # the largest v so far, for amsgrad
        [torch.full((), LATE)],
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=0.0,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )


def is_batch_norm(module: nn.Module) -> bool:
    """Whether the module itself normalises by the statistics of a batch."""
    if BATCH_NORM is None:
        return isinstance(module, BATCH_NORMS)
    return isinstance(module, BATCH_NORM)


def is_dropout(module: nn.Module) -> bool:
    """Whether the module itself drops numbers at random."""
    if DROPOUT is None:
        return isinstance(module, DROPOUTS)
    return isinstance(module, DROPOUT)


def has_hooks(module: nn.Module) -> bool:
    """Whether the module itself has hooks; True also where torch no longer has these lists."""
    return any(getattr(module, name, True) for name in HOOKS)
