"""Panels of lines, such as a score per round: what the drawings of several sections share."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.report.pictures import hide_spare_panels, legend_below, panels_of
from tacit.report.study_tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PANELS_IN_A_ROW = 3
LETTERS_IN_A_PANEL = 45  # of a legend, in a panel of the usual width
USUAL_WIDTH = 4.2


@dataclass(frozen=True)
class LinePanels:
    """A figure with a panel for each title; panels share their axes."""

    figure: Figure
    panels: dict[str, Any]  # matplotlib's axes

    @classmethod
    def of(cls, titles: Sequence[str]) -> LinePanels:
        columns = min(len(titles), PANELS_IN_A_ROW)
        rows = math.ceil(len(titles) / columns)
        figure, axes = panels_of(rows, columns, shared=True)
        hide_spare_panels(axes, len(titles))
        return cls(figure, dict(zip(titles, axes.flat, strict=False)))

    def label(self, ylabel: str, xlabel: str = "round") -> None:
        """Titles, axes and a legend, once everything is drawn."""
        for title, panel in self.panels.items():
            panel.set_title(textwrap.fill(str(title), 44), fontsize=10)
            panel.grid(alpha=0.3)
            panel.set_xlabel(xlabel)
            panel.tick_params(labelbottom=True)
            if xlabel == "round":
                panel.xaxis.get_major_locator().set_params(integer=True)
        first = next(iter(self.panels.values()))
        first.set_ylabel(ylabel)
        self._add_legend()

    def _add_legend(self) -> None:
        panels = self.panels.values()
        texts = [text for panel in panels for text in panel.get_legend_handles_labels()[1]]
        longest = max(map(len, texts), default=1)
        letters = int(LETTERS_IN_A_PANEL * self.figure.get_figwidth() / USUAL_WIDTH)
        fitting = letters // (longest + 5)
        legend_below(self.figure, panels, columns=min(6, fitting))


def name_rows(results: StudyTables, table: pd.DataFrame) -> pd.DataFrame:
    """A table of rounds or clients, with each run's method and column as the tables name them."""
    methods = table["run"].map(results.names)
    return table.assign(algorithm=methods, split=table[results.columns])


def draw_band(panel: Any, by_round: Any, style: dict[str, Any]) -> None:
    """From the lowest to the highest value of each round, which pandas has grouped."""
    low = by_round.min()
    high = by_round.max()
    panel.fill_between(low.index, low, high, color=style["color"], alpha=0.15, linewidth=0)


def use_logarithms(panel: Any, axis: str) -> None:
    """Makes the axis x or y logarithmic, with few and plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if not panel.lines:  # nothing is drawn, as where all runs diverged
        return
    panel.set(**{f"{axis}scale": "log"})
    ruler = getattr(panel, f"{axis}axis")
    low, high = ruler.get_view_interval()
    marks = (1, 2, 5) if high < 50 * low else (1,)
    ruler.set_major_locator(LogLocator(subs=marks, numticks=6))
    ruler.set_major_formatter("{x:g}")
    ruler.set_minor_formatter(NullFormatter())
