"""Progress in the terminal: rounds done, rate, time left. Nothing at all when it is not one."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from tacit.core.events import Downloading, Event, RoundFinished, RunFinished, StudyStarted, Warned


class Display:
    """Renders an engine's events; `on_event` is the callback."""

    def __init__(self, *, shown: bool, quiet: bool = False) -> None:
        self.shown, self.quiet, self.folder, self.played, self.since = shown, quiet, "", 0, 0.0
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self.shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self.bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def on_event(self, event: Event) -> None:
        if isinstance(event, StudyStarted):
            self.folder = event.folder
        if isinstance(event, Warned) and not self.quiet:
            print(f"note: {event.text}", file=sys.stderr)
        if not self.bar:
            return
        match event:
            case StudyStarted(runs=runs, rounds=rounds, done=done):
                self.since = time.monotonic()
                self.tasks["rounds"] = self.bar.add_task(f"{runs} runs, rounds", total=rounds, completed=done, note="")
            case RoundFinished(run=run, metrics=metrics):
                accuracy = metrics["accuracy"]
                self.played += 1
                rate = self.played / (time.monotonic() - self.since)
                note = f"{rate:.1f}/s  {run} {'diverged' if accuracy is None else f'{accuracy:.3f}'}"
                self.bar.update(self.tasks["rounds"], advance=1, note=note)
            case RunFinished(rounds_left=left):
                self.bar.update(self.tasks["rounds"], advance=left)
            case Downloading(file=file, done=done, total=total):
                if file not in self.tasks:
                    self.tasks[file] = self.bar.add_task(file, total=total, note="bytes")
                self.bar.update(self.tasks[file], completed=done, total=total)
