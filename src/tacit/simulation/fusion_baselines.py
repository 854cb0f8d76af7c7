"""What a fused network is compared with: the clients' own networks, their plain average and their ensemble."""

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
class Judge:
    """Tests networks, one after another."""

    score: Score
    x: Tensor  # the test set
    y: Tensor

    def compare(
        self, fused: nn.Module, own: Sequence[nn.Module], average: nn.Module | None
    ) -> dict[str, Any]:
        """The fused network's figures on the test set, and the scores of the others."""
        answers, name = [_answer(module, self.x) for module in own], self.score.name
        output = _answer(fused, self.x)
        loss, hit = (values(output, self.y).double().mean().item() for values in (losses, hits))
        alone = [self._figures(answer, self.y)[1] or 0.0 for answer in answers]
        return {
            "loss": loss,
            **self.score.whole(hit),
            f"alone_{name}": sum(alone) / len(alone),
            f"average_{name}": None if average is None else self.test(average, self.x, self.y)[1],
            f"ensemble_{name}": self._figures(_together(answers, self.y), self.y)[1],
            "alone": alone,
        }

    def test(self, module: nn.Module, x: Tensor, y: Tensor) -> Test:
        """Loss and score on these samples; of none, nothing."""
        return self._figures(_answer(module, x), y) if len(y) else (None, None)

    def _figures(self, output: Tensor, y: Tensor) -> Test:
        return losses(output, y).double().mean().item(), self.score(
            hits(output, y).double().mean().item()
        )


@torch.no_grad()
def _answer(module: nn.Module, x: Tensor) -> Tensor:
    """# (n, outputs)"""
    module.eval()
    return torch.cat([module(part) for part in x.split(CHUNK)])


def _together(answers: Sequence[Tensor], y: Tensor) -> Tensor:
    """The mean of the probabilities or, in a regression, of the numbers. # (n, outputs)"""
    numbers = is_regression(answers[0], y)
    return torch.stack([answer if numbers else answer.softmax(-1) for answer in answers]).mean(0)
