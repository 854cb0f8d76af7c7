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
from tacit.rounds.client import fit
from tacit.rounds.server_state import Losses, ServerState
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.training.batches import Samples
from tacit.training.losses import USUAL
from tacit.training.row_trainer import RowTrainer


@dataclass(frozen=True)
class ServerData:
    """The data of a run's server, and what it does with them."""

    run: HorizontalRun
    trainer: RowTrainer
    sample: Samples  # set aside before the split; perhaps empty
    public: Samples | None = None  # a public table; without one, the sample serves

    def losses(self, state: ServerState) -> Losses | None:
        """The loss of the global model moved by each row, for combiners that judge updates.

        It is measured on a part of the sample that is drawn anew each round.
        """
        if not len(self.sample.y):
            return None

        def losses_of(dx: Tensor, size: int) -> Tensor:
            samples = self._draw(state.round, size)
            means = []
            for row in dx:  # one model at a time: rows may be many and models large
                model = (state.server["x"] + row, state.buffers)
                (answers,) = self.trainer.test([model], samples)
                means.append(answers.losses.mean())
            return torch.stack(means)[:, None].to(dx)

        return losses_of

    def _draw(self, round: int, size: int) -> Samples:
        """So many of the server's own samples, others each round."""
        rng = generator(self.run.seed, "server loss", round)
        order = torch.randperm(len(self.sample.y), generator=rng)
        index = order[:size].to(self.sample.y.device)
        return Samples(self.sample.features(index), self.sample.y[index])

    def pretrained(self, x: Tensor, buffers: Rows) -> tuple[Tensor, Rows]:
        """The initial model (P,) after passes over the public data."""
        state = ServerState({"x": x}, buffers)
        trainer = self.trainer.on(self._public)
        return self._fitted("pre-training", self.run.pretraining, state, trainer)

    def distil(self, before: ServerState, after: ServerState, cohort: Cohort) -> ServerState:
        """Draws the new global model towards the clients' mean prediction on the public data.

        That needs no labels. Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion
        in Federated Learning, 2020, algorithm 1. Classes are learnt by plain cross-entropy,
        whatever the clients' loss: their predictions have its weights in them already.
        """
        teachers = self._mean_prediction(before, after, cohort)
        is_regression = self._public.y.is_floating_point()
        loss = self.trainer.loss or USUAL
        targets = loss.predicted(teachers) if is_regression else teachers.softmax(1)
        data = Samples(self._public.x, targets)
        trainer = self.trainer.on(data, usual_loss=not is_regression)
        state = replace(after, round=before.round)
        x, buffers = self._fitted("distillation", self.run.distillation, state, trainer)
        return ServerState({**after.server, "x": x}, buffers, after.round)

    def _mean_prediction(self, before: ServerState, after: ServerState, cohort: Cohort) -> Tensor:
        """The mean of what the clients' models say of the public data. # (n, outputs)"""
        mean = torch.zeros(())
        names = [name for name in BUFFERS if name in cohort.messages]
        for row, dx in enumerate(cohort.messages["dx"]):  # one model at a time
            entries = {name: cohort.messages[name][row] for name in names}
            buffers = unpack(entries, after.buffers)
            w = before.server["x"] + dx
            answers = self.trainer.outputs(w, buffers, self._public.x)
            mean = mean.to(answers) + answers / len(cohort.ids)
        return mean

    @property
    def _public(self) -> Samples:
        return self.sample if self.public is None else self.public

    def _fitted(
        self, purpose: str, epochs: int, state: ServerState, trainer: RowTrainer
    ) -> tuple[Tensor, Rows]:
        """The global model after passes over this trainer's samples.

        `purpose` seeds what is random in them.
        """
        run = self.run
        everything = torch.arange(len(trainer.samples.y))
        rng = generator(run.seed, purpose, state.round)
        batch_size = run.batch_size_of(0)
        passes = run.sampling.plain_passes
        batches = trainer.draw_batches(passes, everything, epochs, batch_size, rng)
        seed = derive(run.seed, purpose, 0, state.round)
        model = (state.server["x"][None], state.buffers)
        return fit(run, state.round, model, batches, trainer, seed)
