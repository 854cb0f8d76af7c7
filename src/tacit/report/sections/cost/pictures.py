"""The score against what was sent, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.report.line_panels import LinePanels, use_logarithms
from tacit.report.pictures import drawing, line_style
from tacit.report.study_tables import is_reference

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@drawing
def draw_cost(rounds: pd.DataFrame, score: str, *, ylabel: str) -> Figure:
    """The score against the megabytes that all clients have sent so far.

    There is a panel per split and a line per algorithm.
    """
    rounds = rounds[~rounds["algorithm"].map(is_reference)]
    megabytes = rounds.groupby("run", sort=False)["bytes_up"].cumsum() / 1e6
    rounds = rounds.assign(megabytes=megabytes)
    drawn = LinePanels.of(list(rounds["split"].unique()) or ["centralised"])
    for number, algorithm in enumerate(rounds["algorithm"].unique()):
        of_algorithm = rounds[rounds["algorithm"] == algorithm]
        for split, panel in drawn.panels.items():
            by_round = of_algorithm[of_algorithm["split"] == split].groupby("round")
            means = by_round[["megabytes", score]].mean()
            means = means[means["megabytes"] > 0]  # the axis has no place for nothing
            if len(means):
                style = line_style(number)
                panel.plot(means["megabytes"], means[score], label=algorithm, **style)
    for panel in drawn.panels.values():
        use_logarithms(panel, "x")
    drawn.label(ylabel, "megabytes sent")
    return drawn.figure
