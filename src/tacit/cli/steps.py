"""Progress of work whose amount is known, on stderr: a bar with a rate in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tacit.cli.progress import FIRST, THEN
from tacit.core.events import Advanced, Event, Noted, Warned


class Steps:
    """Listens; with `quiet` it tells of nothing but trouble."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet, self.clock = quiet, clock
        self.start: float | None = None
        self.next, self.before = 0.0, 0
        self.bar: Any = None
        self.task: Any = None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned) or (isinstance(event, Noted) and not self.quiet):
            self._say(f"note: {event.text}")
        elif isinstance(event, Advanced) and not self.quiet:
            self._advance(event)

    def _advance(self, event: Advanced) -> None:
        now = self.clock()
        if self.start is None or event.done < self.before:  # the first, or starting over
            self.start, self.next = now, now + FIRST
        self.before = event.done
        rate = event.done / max(now - self.start, 1e-9)
        speed = (
            f"{rate:,.0f} per second" if now - self.start >= FIRST else ""
        )  # the first events tell no rate
        if self.bar is not None:
            self.bar.update(
                self.task,
                description=event.what,
                completed=event.done,
                total=event.total,
                rate=speed,
            )
        elif now >= self.next:
            self.next = now + THEN
            left = (event.total - event.done) / max(rate, 1e-9)
            self._say(f"{event.done:,} of {event.total:,} {event.what}, {speed}, {left:.0f} s left")

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            rate = progress.TextColumn("{task.fields[rate]}")
            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
            )
            self.bar = progress.Progress(
                *columns,
                rate,
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.bar.add_task("waiting", total=None, rate="")
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
