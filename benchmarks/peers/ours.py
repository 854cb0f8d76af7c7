"""tacit, as a user runs it: a study with history, checkpoints, client metrics and report."""

from __future__ import annotations

import tempfile
from pathlib import Path

from peers.task import Clock, Task, load, make_model

import tacit
from tacit.core.events import Event, RoundFinished, StudyStarted
from tacit.data.datasets import Dataset


def dataset() -> Dataset:
    """The data that every peer gets, as tacit's `function` source reads them."""
    task = Task.from_command_line()
    return Dataset("mnist", *load(task.samples), tuple("0123456789"))


def main() -> None:
    task = Task.from_command_line()
    clock = Clock()
    study = tacit.Study(
        "peers",
        dataset={"name": "function", "path": "peers.ours:dataset"},
        model=make_model(),
        clients=task.clients,
        local_test=0.0,
        optimiser={"name": "sgd", "lr": task.lr},
        batch_size=task.batch,
        rounds=task.rounds,
    )

    def listen(event: Event) -> None:
        if isinstance(event, StudyStarted):
            clock.start()
        if isinstance(event, RoundFinished):
            clock.round_done(event.metrics["accuracy"])

    with tempfile.TemporaryDirectory() as folder:
        tacit.run(study, Path(folder) / "study", on_event=listen)
    clock.report(name="tacit", version=tacit.__version__)


if __name__ == "__main__":
    main()
