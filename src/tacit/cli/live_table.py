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
from tacit.records.tally import Tally, TallyCell, duration

OTHER_LINES = 5  # the bar, a gap, the header, "... and 3 more", the cursor
BAR = 24  # columns


class LiveTable(Silence):
    """Draws the tally a few times a second; at the end it goes away, and the table is printed."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        super().__init__(clock)
        self.console = console or Console(stderr=True, markup=False)
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
            bars = [_download(file, *sizes) for file, sizes in self.downloads.items()]
            return Group(*bars)
        lines = self.console.height - OTHER_LINES
        return Group(_bar(self.tally), Text(), comparison(self.tally, lines))


def comparison(tally: Tally, lines: int) -> RenderableType:
    """Methods by splits, in at most so many lines.

    A cell is dim while its runs go on, and bold if it is the best finished one of its column and a
    mean over several seeds.
    """
    rows = list(dict.fromkeys(row for row, _ in tally.grid.values()))
    columns = list(dict.fromkeys(column for _, column in tally.grid.values()))
    table = Table(box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    best = {}
    for column in columns:
        table.add_column(column, justify="right")
        cells_of_column = [tally.cell(row, column) for row in rows]
        best[column] = _best(cells_of_column, lowest=tally.lowest_is_best)
    visible = rows if len(rows) <= lines else rows[: max(1, lines)]
    for row in visible:
        cells = [_draw(tally.cell(row, column), best[column]) for column in columns]
        table.add_row(row, *cells)
    hidden = len(rows) - len(visible)
    if hidden:
        return Group(table, Text(f"... and {hidden} more", style="dim"))
    return table


def _best(cells: list[TallyCell], *, lowest: bool) -> float | None:
    """The best mean of several seeds; one seed alone proves nothing."""
    finished = [cell for cell in cells if cell.state == "finished" and cell.runs > 1]
    means = [cell.mean for cell in finished if cell.mean is not None]
    return min(means, default=None) if lowest else max(means, default=None)


def _draw(cell: TallyCell, best: float | None) -> Text:
    if cell.state == "diverged":
        return Text("diverged", style="red")
    if cell.mean is None:
        return Text("-", style="dim")
    style = ""
    if cell.state == "going":
        style = "dim"
    elif cell.mean == best:
        style = "bold"
    return Text(f"{cell.mean:.4f}", style=style)


def _bar(tally: Tally) -> RenderableType:
    notes = [tally.counts, f"{tally.rate:.1f} rounds/s", duration(tally.elapsed)]
    if tally.left:
        notes.append(f"about {duration(tally.left)} left")
    bar = ProgressBar(total=tally.rounds, completed=tally.done, width=BAR)
    return _beside(bar, ", ".join(notes))


def _download(file: str, done: int, total: int) -> RenderableType:
    size = f"{done / 1e6:.1f} MB"
    if total:
        size = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    bar = ProgressBar(total=total or None, completed=done, width=BAR)
    return _beside(bar, f"{file}, {size}")


def _beside(bar: ProgressBar, text: str) -> RenderableType:
    """The bar, and the text to the right of it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(bar, Text(text))
    return grid
