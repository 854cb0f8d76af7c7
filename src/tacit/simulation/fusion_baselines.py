"""What a fused network is compared with: clients' networks, their average and their ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.simulation.metrics import Test, measure_tests
from tacit.training.evaluation import Answers, read_output
from tacit.training.losses import USUAL, Loss, is_regression
from tacit.training.yardstick import Yardstick, known

CHUNK = 1024  # samples at a time


@dataclass(frozen=True)
class NetworkTester:
    """Tests networks, one after another."""

    yardstick: Yardstick
    x: Tensor  # the test set
    y: Tensor
    loss: Loss = USUAL  # that the clients' networks were trained for

    def compare(
        self, fused: nn.Module, clients: Sequence[nn.Module], average: nn.Module | None
    ) -> dict[str, Any]:
        """The fused network's figures on the test set, and the figure that decides of the others.

        `alone` are those of the clients' own networks.
        """
        outputs = [_outputs(module, self.x) for module in clients]
        alone = [self._deciding_figure(output) for output in outputs]
        average_figure = None
        if average is not None:
            average_figure = self._deciding_figure(_outputs(average, self.x))
        ensemble = self._figure_of(self._mean_answers(outputs))
        measured = [figure for figure in alone if figure is not None]
        name = self.yardstick.name
        return {
            **self.test(fused, self.x, self.y),
            f"alone_{name}": sum(measured) / len(measured) if measured else None,
            f"average_{name}": average_figure,
            f"ensemble_{name}": ensemble,
            "alone": alone,
        }

    def answers(self, module: nn.Module, x: Tensor, y: Tensor) -> Answers:
        """What a network answers to these samples."""
        return self._answers(_outputs(module, x), y)

    def test(self, module: nn.Module, x: Tensor, y: Tensor) -> Test:
        """Loss and metrics on these samples; of none, nothing."""
        if not len(y):
            return {"loss": None, **self.yardstick.no_figures}
        (test,) = measure_tests(self.yardstick, self.answers(module, x, y), y.cpu(), [len(y)])
        return test

    def _deciding_figure(self, output: Tensor) -> float | None:
        """The figure that decides, of an output for the test set."""
        return self._figure_of(self._answers(output, self.y))

    def _figure_of(self, answers: Answers) -> float | None:
        figures = self.yardstick.measure(answers, self.y.cpu())
        return known(figures[self.yardstick.name][0])

    def _answers(self, output: Tensor, y: Tensor) -> Answers:
        return Answers(self.loss(output, y), *read_output(output, y, self.loss)).on_host()

    def _mean_answers(self, outputs: Sequence[Tensor]) -> Answers:
        """The mean of what several networks predict: probabilities or, in a regression, numbers."""
        predicted = torch.stack([self.loss.predicted(output) for output in outputs]).mean(0).cpu()
        classes = torch.zeros(0, dtype=torch.int64)
        if not is_regression(outputs[0], self.y):
            classes = predicted.argmax(-1)
        return Answers(torch.zeros(len(predicted)), predicted, classes)


@torch.no_grad()
def _outputs(module: nn.Module, x: Tensor) -> Tensor:
    """# (n, outputs)"""
    module.eval()
    return torch.cat([module(chunk) for chunk in x.split(CHUNK)])
