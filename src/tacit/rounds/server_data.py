"""What a server learns from by itself: a sample that was set aside for it, and public data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.core.rows import Rows
from tacit.core.seeds import derive, generator
from tacit.core.vectors import unpack
from tacit.federated.cohort import Cohort
from tacit.federated.wire.stage import BUFFERS
from tacit.rounds.client import PLAIN_PASSES, fit
from tacit.rounds.server import Losses, ServerState
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Samples
from tacit.training.row_trainer import RowTrainer


@dataclass(frozen=True)
class ServerData:
    """A run's server with data of its own."""

    run: HorizontalRun
    trainer: RowTrainer
    sample: Samples  # set aside before the split; perhaps empty
    public: Samples | None = None  # a public table; without one, the sample serves

    def losses(self, state: ServerState) -> Losses | None:
        """The loss, on a part of the sample that is drawn anew each round, of the model moved by each row."""
        if not len(self.sample.y):
            return None

        def losses_of(dx: Tensor, size: int) -> Tensor:
            draw = generator(self.run.seed, "server loss", state.round)
            index = torch.randperm(len(self.sample.y), generator=draw)[:size].to(
                self.sample.y.device
            )
            judged = Samples(self.sample.features(index), self.sample.y[index])
            means = []
            for row in dx:  # one model at a time: rows may be many and models large
                (losses, _), *_ = self.trainer.test(
                    [(state.server["x"] + row, state.buffers)], judged
                )
                means.append(losses.mean())
            return torch.stack(means)[:, None].to(dx)

        return losses_of

    def pretrained(self, x: Tensor, buffers: Rows) -> tuple[Tensor, Rows]:
        """The initial model (P,) after passes over the public data."""
        return self._fitted(
            "pre-training", self.run.pretraining, ServerState({"x": x}, buffers), self._public
        )

    def distil(self, before: ServerState, after: ServerState, cohort: Cohort) -> ServerState:
        """Draws the new global model towards the clients' mean prediction on the public data, which needs no labels.

        Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, 2020, algorithm 1.
        """
        inputs, teachers = self._public.x, torch.zeros(())
        for k, dx in enumerate(cohort.messages["dx"]):  # one model at a time
            entries = {
                name: cohort.messages[name][k] for name in BUFFERS if name in cohort.messages
            }
            buffers = unpack(entries, after.buffers)
            answers = self.trainer.outputs(before.server["x"] + dx, buffers, inputs)
            teachers = teachers.to(answers) + answers / len(cohort.ids)
        numbers = self._public.y.is_floating_point()  # a regression's
        data = Samples(inputs, teachers[:, 0] if numbers else teachers.softmax(1))
        at = replace(after, round=before.round)
        x, buffers = self._fitted("distillation", self.run.distillation, at, data)
        return ServerState({**after.server, "x": x}, buffers, after.round)

    @property
    def _public(self) -> Samples:
        return self.sample if self.public is None else self.public

    def _fitted(
        self, name: str, epochs: int, state: ServerState, data: Samples
    ) -> tuple[Tensor, Rows]:
        run, trainer = self.run, self.trainer.on(data)
        everything = torch.arange(len(data.y))
        order = torch.Generator().manual_seed(derive(run.seed, name, state.round))
        batches = trainer.draw_batches(
            PLAIN_PASSES, everything, epochs, run.batch_size_of(0), order
        )
        seed = derive(run.seed, name, 0, state.round)
        return fit(
            run, state.round, (state.server["x"][None], state.buffers), batches, trainer, seed
        )
