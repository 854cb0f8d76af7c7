"""A module whose rows are trained, and how they are computed."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tacit.core.vectors import Layout
from tacit.training.evaluation import RowOutputs, row_outputs
from tacit.training.gradients import GradientForm, GradientFunction, mixes_samples, row_gradients
from tacit.training.kernel_network import KernelGradients, KernelNetwork
from tacit.training.kernel_reader import read
from tacit.training.losses import Loss
from tacit.training.torch_modes import draws_numbers


class RowModule:
    """A copy of a module on the device of x, a few samples.

    `outputs` answers for many rows at once; where rows are computed one by one it is None. It uses
    kernels of our own if they are wanted and can compute the module: then `network` is the module
    as they read it.
    """

    def __init__(self, module: nn.Module, x: Tensor, form: GradientForm, *, kernels: bool) -> None:
        self.module = copy.deepcopy(module).to(x.device)
        self.layout = Layout.of(module)
        self.form = form
        self.draws = draws_numbers(self.module, x)
        independent = not self.draws and not mixes_samples(self.module)
        self.can_be_captured = form == "captured" and independent
        self.outputs: RowOutputs | None = None
        self.network: KernelNetwork | None = None
        if form != "loop":
            self.outputs = row_outputs(copy.deepcopy(self.module))
        on_gpu = x.device.type != "cpu"
        if kernels and on_gpu and self.can_be_captured and x.dtype == torch.float32:
            self._use_kernels(x)

    def make_gradient(self, loss: Loss | None) -> GradientFunction:
        """A new gradient function; a `loss` takes the place of the usual one."""
        if self.network is not None:
            return KernelGradients(self.network, loss)
        if self.form == "loop":
            return row_gradients(self.module, "loop", loss)
        return row_gradients(self.module, "vmap", loss)

    def copied(self) -> RowModule:
        """The same with a module of its own, for another thread."""
        clone = copy.copy(self)
        clone.module = copy.deepcopy(self.module)
        return clone

    def _use_kernels(self, x: Tensor) -> None:
        network = read(self.module, x.shape[1:])
        if network is not None and answers_alike(network, self.module, x):
            self.network = network
            self.outputs = network.answers


@torch.no_grad()
def answers_alike(network: KernelNetwork, module: nn.Module, x: Tensor) -> bool:
    """Whether the network answers as the module does."""
    w = Layout.of(module).flatten(module)[None]
    answers = network.outputs(w, network.pack(x)[None])[0]
    expected = module.eval()(x)
    return torch.allclose(answers, expected, rtol=1e-2, atol=5e-3)  # TF32 has three digits
