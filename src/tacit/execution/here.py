"""Blocks one after another, in this process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tacit.data.dataset import Dataset
from tacit.execution.devices import computing_with
from tacit.execution.plan import Plan
from tacit.execution.play import BlockTask, play_block
from tacit.records.recorder import Recorder


def play(
    plan: Plan, tasks: Sequence[BlockTask], datasets: Mapping[str, Dataset], recorder: Recorder
) -> None:
    """Plays all blocks."""
    memories = recorder.folder / "memories"
    with computing_with(plan.threads):
        for task in tasks:
            resumed = replace(task, saved=recorder.saved(task.index), memories=memories)
            for message in play_block(resumed, datasets):
                recorder.take(task.index, message)
    shutil.rmtree(memories, ignore_errors=True)  # also what a crash has left there
