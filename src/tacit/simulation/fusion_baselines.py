"""What a fused network is compared with: clients' networks, their average and their ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.simulation.metrics import Score, Test
from tacit.training.losses import USUAL, Loss, hits, is_regression

CHUNK = 1024  # samples at a time


@dataclass(frozen=True)
class NetworkTester:
    """Tests networks, one after another."""

    score: Score
    x: Tensor  # the test set
    y: Tensor
    loss: Loss = USUAL  # that the clients' networks were trained for

    def compare(
        self, fused: nn.Module, clients: Sequence[nn.Module], average: nn.Module | None
    ) -> dict[str, Any]:
        """The fused network's figures on the test set, and the scores of the others."""
        fused_loss, fused_hits = self._mean_figures(_answer(fused, self.x), self.y)
        client_answers = [_answer(module, self.x) for module in clients]
        alone = [self._score(answer) for answer in client_answers]
        average_score = None
        if average is not None:
            average_score = self._score(_answer(average, self.x))
        ensemble = self._mean_prediction(client_answers)
        name = self.score.name
        return {
            "loss": fused_loss,
            **self.score.global_figures(fused_hits),
            f"alone_{name}": sum(alone) / len(alone),
            f"average_{name}": average_score,
            f"ensemble_{name}": self.score(_mean(hits(ensemble, self.y))),
            "alone": alone,
        }

    def test(self, module: nn.Module, x: Tensor, y: Tensor) -> Test:
        """Loss and score on these samples; of none, nothing."""
        if not len(y):
            return None, None
        mean_loss, mean_hits = self._mean_figures(_answer(module, x), y)
        return mean_loss, self.score(mean_hits)

    def _score(self, answer: Tensor) -> float:
        """The score of an answer to the test set."""
        _, mean_hits = self._mean_figures(answer, self.y)
        return self.score(mean_hits)

    def _mean_figures(self, output: Tensor, y: Tensor) -> tuple[float, float]:
        """The mean of the samples' losses, and of their hits or squared errors."""
        return _mean(self.loss(output, y)), _mean(hits(output, y, self.loss))

    def _mean_prediction(self, answers: Sequence[Tensor]) -> Tensor:
        """The mean of the probabilities or, in a regression, of the numbers. # (n, outputs)"""
        predictions = [self.loss.predicted(answer) for answer in answers]
        mean = torch.stack(predictions).mean(0)
        return mean[:, None] if is_regression(answers[0], self.y) else mean


def _mean(values: Tensor) -> float:
    return values.double().mean().item()


@torch.no_grad()
def _answer(module: nn.Module, x: Tensor) -> Tensor:
    """# (n, outputs)"""
    module.eval()
    return torch.cat([module(chunk) for chunk in x.split(CHUNK)])
