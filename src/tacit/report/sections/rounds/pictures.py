"""A metric per round, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.report.line_panels import LinePanels, draw_band, use_logarithms
from tacit.report.pictures import INK, drawing, line_style
from tacit.report.study_tables import is_reference

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

EXPLODED = 50  # times the median: a loss that grows so much hides all others


@drawing
def draw_rounds(rounds: pd.DataFrame, metric: str, *, ylabel: str) -> Figure:
    """The metric per round, a panel per split and a line per algorithm.

    A band goes from the lowest to the highest where seeds or settings differ. A centralised run is
    a dotted reference line in every panel.
    """
    central = rounds["algorithm"].map(is_reference)
    methods = rounds if central.all() else rounds[~central]
    drawn = LinePanels.of(list(methods["split"].unique()))
    if central.any() and not central.all():
        _draw_reference(drawn, rounds[central], metric)
    for number, algorithm in enumerate(methods["algorithm"].unique()):
        of_algorithm = methods[methods["algorithm"] == algorithm]
        for split, panel in drawn.panels.items():
            by_round = of_algorithm[of_algorithm["split"] == split].groupby("round")[metric]
            if len(by_round):
                style = line_style(number)
                panel.plot(by_round.mean(), label=algorithm, **style)
                draw_band(panel, by_round, style)
    if metric == "loss" and methods["loss"].max() > EXPLODED * methods["loss"].median():
        for panel in drawn.panels.values():
            use_logarithms(panel, "y")
    drawn.label(ylabel)
    return drawn.figure


def _draw_reference(drawn: LinePanels, references: pd.DataFrame, metric: str) -> None:
    """A dotted line: that of the panel's own reference or, where there is none, of all."""
    for split, panel in drawn.panels.items():
        of_panel = references[references["split"] == split]
        shown = of_panel if len(of_panel) else references
        means = shown.groupby("round")[metric].mean()
        panel.plot(means, label="centralised", color=INK, linestyle=(0, (1, 2)))
