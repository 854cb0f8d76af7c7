"""The only writer of a running study's folder: its history, checkpoints and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit.core.errors import StudyError
from tacit.core.events import ModelSaved, OnEvent, RoundFinished, RunFinished, Warned
from tacit.records import checkpoint
from tacit.records.assessments import write_assessment
from tacit.records.checkpoint import Checkpoints
from tacit.records.history import History
from tacit.records.messages import (
    BlockEnded,
    BlockSaved,
    Message,
    ModelTrained,
    RoundPlayed,
    RunAssessed,
)

RETRIES = 3  # of one block


class Recorder:
    """Takes the messages of all blocks, in any order. `rounds` says how many each run has."""

    def __init__(
        self,
        folder: Path,
        rounds: Mapping[str, int],
        checkpoints: Checkpoints,
        on_event: OnEvent,
        metric: str = "accuracy",
    ) -> None:
        self.folder = folder
        self.rounds = rounds
        self.checkpoints = checkpoints
        self.on_event = on_event
        self.metric = metric
        self.recorded = dict.fromkeys(rounds, 0) | checkpoints.rounds  # run -> its last round
        self.history = History(folder, list(rounds), checkpoints.rounds)
        self.losses: Counter[int] = Counter()  # block -> how often it has lost its worker

    @property
    def done(self) -> int:
        """Rounds that need not be played any more; of a run that stopped early, these are all."""
        done = 0
        for run, last in self.recorded.items():
            done += self.rounds[run] if run in self.checkpoints.ended else last
        return done

    def take(self, block: int, message: Message) -> None:
        """Records a message.

        A block that is played again from its checkpoint repeats rounds that were recorded before,
        equal to the bit; they are skipped. If an interrupt has lost a round, no checkpoint after it
        is recorded.
        """
        match message:
            case RoundPlayed():
                self._add_round(message)
            case ModelTrained():
                self._save_model(message)
            case RunAssessed():
                write_assessment(self.folder, message.run, message.findings)
            case BlockSaved():
                if self._has_recorded(message.rounds):
                    self._save_checkpoint(block, message.state)
            case BlockEnded():
                rounds = {run: round for run, (round, _) in message.runs.items()}
                if self._has_recorded(rounds):
                    self._end_block(block, message)

    def saved(self, block: int) -> bytes | None:
        """The checkpoint from which the block goes on."""
        return self.checkpoints.saved(block)

    def retry(self, block: int, runs: Sequence[str], why: str) -> None:
        """Notes that a block of these runs has lost its worker.

        A block that loses its worker too often ends the study.
        """
        self.losses[block] += 1
        name = runs[0]
        if len(runs) > 1:
            name += f" and {len(runs) - 1} more"
        if self.losses[block] > RETRIES:
            raise StudyError(
                f"{name} lost its worker {RETRIES + 1} times, the last time because {why};"
                " resume the study with fewer workers if memory ran out"
            )
        self.on_event(Warned(f"{why}; {name} continues from its last checkpoint"))

    def close(self, *, complete: bool) -> None:
        """Closes the history, and puts it in order if the study is complete."""
        if complete:
            self.history.arrange()
        else:
            self.history.close()

    def _has_recorded(self, rounds: Mapping[str, int]) -> bool:
        """Whether all rounds up to these, run by run, are in the history."""
        return all(self.recorded[run] >= round for run, round in rounds.items())

    def _add_round(self, message: RoundPlayed) -> None:
        run = message.record["run"]
        round = message.record["round"]
        if round == self.recorded[run] + 1:
            self.history.add(message.record, message.seconds)
            self.recorded[run] = round
            self.on_event(RoundFinished(run, round, message.record, self.metric))

    def _save_model(self, message: ModelTrained) -> None:
        path = self.folder / "models" / f"{message.name}.pt"
        checkpoint.write(path, message.state)
        self.on_event(ModelSaved(message.run, message.client, str(path)))

    def _save_checkpoint(self, block: int, state: bytes) -> None:
        self.history.sync()
        self.checkpoints.write(block, state)

    def _end_block(self, block: int, message: BlockEnded) -> None:
        for run, (round, status) in message.runs.items():
            self.on_event(RunFinished(run, round, status, self.rounds[run] - round))
        # Saved last: if a listener fails, the resumed study tells it of all these ends again.
        self._save_checkpoint(block, message.state)
