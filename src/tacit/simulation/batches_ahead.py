"""The clients' batches; those of the next round are drawn while a GPU is busy with this one."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.rounds.client import draw_batches
from tacit.simulation.state import RunState
from tacit.training.batches import Batches
from tacit.training.row_trainer import RowTrainer


class BatchesAhead:
    """Batches that have been drawn already, by run, client and round."""

    def __init__(self, trainer: RowTrainer) -> None:
        self.trainer = trainer
        self.drawn: dict[tuple[str, int, int], Batches] = {}

    def take(self, state: RunState, client: int) -> Batches:
        """The client's batches of this round."""
        batches = self.drawn.pop((state.id, client, state.round), None)
        if batches is None:
            batches = self._draw(state, client, state.round)
        return batches

    def prepare(self, states: Sequence[RunState]) -> None:
        """Draws the batches of the round after this one, unless this CPU has the work to do."""
        if self.trainer.device.type == "cpu":
            return
        self.drawn = {}
        for state in states:
            round = state.round + 1
            if round >= state.run.rounds:
                continue
            for client in state.run.participants(round):
                self.drawn[state.id, client, round] = self._draw(state, client, round)

    def _draw(self, state: RunState, client: int, round: int) -> Batches:
        return draw_batches(state.run, client, round, state.train[client], self.trainer)
