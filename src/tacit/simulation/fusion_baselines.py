"""What a fused network is compared with: clients' networks, their average and their ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.simulation.metrics import Score, Test
from tacit.training.losses import hits, is_regression, losses

CHUNK = 1024  # samples at a time


@dataclass(frozen=True)
class NetworkTester:
    """Tests networks, one after another."""

    score: Score
    x: Tensor  # the test set
    y: Tensor

    def compare(
        self, fused: nn.Module, clients: Sequence[nn.Module], average: nn.Module | None
    ) -> dict[str, Any]:
        """The fused network's figures on the test set, and the scores of the others."""
        fused_loss, fused_hits = _mean_figures(_answer(fused, self.x), self.y)
        client_answers = [_answer(module, self.x) for module in clients]
        alone = [self._score(answer) for answer in client_answers]
        average_score = None
        if average is not None:
            average_score = self._score(_answer(average, self.x))
        ensemble = _mean_answer(client_answers, self.y)
        name = self.score.name
        return {
            "loss": fused_loss,
            **self.score.global_figures(fused_hits),
            f"alone_{name}": sum(alone) / len(alone),
            f"average_{name}": average_score,
            f"ensemble_{name}": self._score(ensemble),
            "alone": alone,
        }

    def test(self, module: nn.Module, x: Tensor, y: Tensor) -> Test:
        """Loss and score on these samples; of none, nothing."""
        if not len(y):
            return None, None
        mean_loss, mean_hits = _mean_figures(_answer(module, x), y)
        return mean_loss, self.score(mean_hits)

    def _score(self, answer: Tensor) -> float:
        """The score of an answer to the test set."""
        _, mean_hits = _mean_figures(answer, self.y)
        return self.score(mean_hits)


def _mean_figures(output: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean of the samples' losses, and of their hits or squared errors."""
    mean_loss = losses(output, y).double().mean().item()
    mean_hits = hits(output, y).double().mean().item()
    return mean_loss, mean_hits


@torch.no_grad()
def _answer(module: nn.Module, x: Tensor) -> Tensor:
    """# (n, outputs)"""
    module.eval()
    return torch.cat([module(chunk) for chunk in x.split(CHUNK)])


def _mean_answer(answers: Sequence[Tensor], y: Tensor) -> Tensor:
    """The mean of the probabilities or, in a regression, of the numbers. # (n, outputs)"""
    if not is_regression(answers[0], y):
        answers = [answer.softmax(-1) for answer in answers]
    return torch.stack(list(answers)).mean(0)
