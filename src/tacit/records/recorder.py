"""Writes what comes of the blocks into the study's folder: history, checkpoints and models. Nobody else does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit.core.errors import StudyError
from tacit.core.events import ModelSaved, OnEvent, RoundFinished, RunFinished, Warned
from tacit.records import checkpoint
from tacit.records.checkpoint import Checkpoints
from tacit.records.history import History
from tacit.records.messages import BlockEnded, BlockSaved, Message, ModelTrained, RoundPlayed

RETRIES = 3  # of one block


class Recorder:
    """Takes the messages of all blocks, in whatever order they come. `rounds` are those of each run, by its id."""

    def __init__(
        self, folder: Path, rounds: Mapping[str, int], checkpoints: Checkpoints, on_event: OnEvent
    ) -> None:
        self.folder, self.checkpoints, self.on_event = folder, checkpoints, on_event
        self.rounds = rounds
        self.seen = dict.fromkeys(self.rounds, 0) | checkpoints.rounds
        self.history = History(folder, list(self.rounds), checkpoints.rounds)
        self.lost: Counter[int] = Counter()  # how often a block has lost its worker

    @property
    def done(self) -> int:
        """Rounds that need not be played any more; of a run that stopped early, all."""
        ended = self.checkpoints.ended
        return sum(self.rounds[run] if run in ended else count for run, count in self.seen.items())

    def take(self, block: int, message: Message) -> None:
        """Records a message.

        A block that is played again from its checkpoint repeats rounds that are known, to the bit. Where an interrupt
        has lost a round, nothing that builds on it is recorded.
        """
        if isinstance(message, RoundPlayed):
            self._add(message)
        elif isinstance(message, ModelTrained):
            self._keep(message)
        elif isinstance(message, BlockSaved):
            if all(self.seen[run] >= round for run, round in message.rounds.items()):
                self._save(block, message.state)
        elif all(self.seen[run] >= round for run, (round, _) in message.runs.items()):
            self._end(block, message)

    def saved(self, block: int) -> bytes | None:
        """Where the block goes on."""
        return self.checkpoints.saved(block)

    def retry(self, block: int, runs: Sequence[str], why: str) -> None:
        """Notes that a block of these runs has lost its worker; refuses to go on when that happens too often."""
        self.lost[block] += 1
        first, others = runs[0], len(runs) - 1
        name = f"{first} and {others} more" if others else first
        if self.lost[block] > RETRIES:
            raise StudyError(
                f"{name} lost its worker {RETRIES + 1} times, the last time because {why}; resume the study with fewer"
                " workers if memory ran out"
            )
        self.on_event(Warned(f"{why}; {name} goes on from its last checkpoint"))

    def close(self, *, complete: bool) -> None:
        """Closes the history, and puts it in order if nothing more will come."""
        self.history.arrange() if complete else self.history.close()

    def _add(self, message: RoundPlayed) -> None:
        run, round = message.record["run"], message.record["round"]
        if round == self.seen[run] + 1:
            self.history.add(message.record, message.seconds)
            self.seen[run] = round
            self.on_event(RoundFinished(run, round, message.record))

    def _keep(self, message: ModelTrained) -> None:
        path = self.folder / "models" / f"{message.name}.pt"
        checkpoint.write(path, message.state)
        self.on_event(ModelSaved(message.run, message.client, str(path)))

    def _save(self, block: int, state: bytes) -> None:
        self.history.sync()
        self.checkpoints.write(block, state)

    def _end(self, block: int, message: BlockEnded) -> None:
        for run, (round, status) in message.runs.items():
            self.on_event(RunFinished(run, round, status, self.rounds[run] - round))
        self._save(
            block, message.state
        )  # last: where a listener has failed, a resumed study tells all of it again
