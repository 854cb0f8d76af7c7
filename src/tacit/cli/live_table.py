"""The live display of a terminal: how far the study is, and under it the comparison as it fills."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import rich.live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tacit.cli.silence import Silence
from tacit.core.events import Downloading, Event, Warned
from tacit.records.tally import Cell, Tally, duration

OTHER_LINES = 5  # the bar, a gap, the header, what was left out, the cursor


class LiveTable(Silence):
    """Draws the tally a few times a second; what was drawn goes away at the end, when the table is printed."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        super().__init__(clock)
        self.console = console or Console(stderr=True)
        self.downloads: dict[str, tuple[int, int]] = {}
        self.live = rich.live.Live(self, console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.live.stop()

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.console.print(f"note: {event.text}", markup=False, highlight=False, soft_wrap=True)
        if isinstance(event, Downloading):
            self.downloads = {**self.downloads, event.file: (event.done, event.total)}
        self.tally.add(event)

    def __rich__(self) -> RenderableType:
        if not self.tally.rounds:
            return Group(*(_download(file, *sizes) for file, sizes in self.downloads.items()))
        return Group(
            _bar(self.tally), Text(), comparison(self.tally, self.console.height - OTHER_LINES)
        )


def comparison(tally: Tally, lines: int) -> RenderableType:
    """Methods by splits: dim while going on, bold for the best finished of a column, if it has several seeds."""
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*tally.grid.values(), strict=True))
    best = {column: _best([tally.cell(row, column) for row in rows]) for column in columns}
    table = Table(box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    shown = rows if len(rows) <= lines else rows[: max(1, lines)]
    for row in shown:
        cells = {column: tally.cell(row, column) for column in columns}
        table.add_row(row, *(_draw(cell, best[column]) for column, cell in cells.items()))
    more = len(rows) - len(shown)
    return Group(table, Text(f"... and {more} more", style="dim")) if more else table


def _best(cells: list[Cell]) -> float | None:
    """The best mean of several seeds; one seed alone proves nothing."""
    means = [
        cell.mean
        for cell in cells
        if cell.state == "finished" and cell.runs > 1 and cell.mean is not None
    ]
    return max(means, default=None)


def _draw(cell: Cell, best: float | None) -> Text:
    if cell.state == "diverged":
        return Text("diverged", style="red")
    if cell.mean is None:
        return Text("-", style="dim")
    style = "dim" if cell.state == "going" else "bold" if cell.mean == best else ""
    return Text(f"{cell.mean:.4f}", style=style)


def _bar(tally: Tally) -> RenderableType:
    left = f"about {duration(tally.left)} left" if tally.left else ""
    times = f"{tally.rate:.1f} rounds/s, {duration(tally.elapsed)}"
    grid = Table.grid(padding=(0, 1))
    note = ", ".join(part for part in (tally.counts, times, left) if part)
    grid.add_row(ProgressBar(total=tally.rounds, completed=tally.done, width=24), Text(note))
    return grid


def _download(file: str, done: int, total: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    sizes = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
    grid.add_row(
        ProgressBar(total=total or None, completed=done, width=24), Text(f"{file}, {sizes}")
    )
    return grid
