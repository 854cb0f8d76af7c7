"""Each client's own metrics, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.report.line_panels import LinePanels, draw_band
from tacit.report.metric_texts import title_of
from tacit.report.pictures import drawing, line_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_PANELS = 24  # all clients' figures are in clients.csv
MOST_NAMES = 12  # clients in the legend


@drawing
def draw_clients(clients: pd.DataFrame, score: str) -> Figure:
    """Local test (solid) and train (dotted) of each client, a panel per algorithm and split.

    The first seed is shown. Of a crowd, whose clients come and go, it is the median of each round,
    and a band from the lowest to the highest.
    """
    if "seed" in clients:  # client k holds other samples under another seed
        clients = clients[clients["seed"] == clients["seed"].iloc[0]]
    clients = clients.assign(panel=clients["algorithm"] + ", " + clients["split"])
    drawn = LinePanels.of(list(clients["panel"].unique())[:MOST_PANELS])
    for title, panel in drawn.panels.items():
        shown = clients[clients["panel"] == title]
        if shown["crowd"].any():
            _draw_crowd(panel, shown, score)
        else:
            _draw_each(panel, shown, score)
    dotted = " (dotted: train)" if f"train_{score}" in clients else ""
    drawn.label(f"local {title_of(score)}{dotted}")
    return drawn.figure


def _draw_each(panel: Any, clients: pd.DataFrame, score: str) -> None:
    for number, (client, figures) in enumerate(clients.groupby("client")):
        shown = [name for name in (f"train_{score}", f"test_{score}") if name in figures]
        by_round = figures.groupby("round")[shown].mean()
        label = None
        if number < MOST_NAMES:
            label = str(figures["name"].iloc[0]) if "name" in figures else f"client {client!s}"
            if "attacker" in figures and figures["attacker"].any():
                label += " (attacker)"
        style = line_style(number)
        panel.plot(by_round[f"test_{score}"], label=label, **style)
        if f"train_{score}" in by_round:
            _draw_train(panel, by_round[f"train_{score}"], style)


def _draw_crowd(panel: Any, clients: pd.DataFrame, score: str) -> None:
    if "attacker" in clients:
        clients = clients[~clients["attacker"].astype(bool)]
    numbers = {f"train_{score}": float, f"test_{score}": float}
    clients = clients.astype(numbers)  # a column without any number holds objects
    by_round = clients.groupby("round")
    test = by_round[f"test_{score}"]
    style = line_style(0)
    panel.plot(test.median(), label="median of the round's clients", **style)
    draw_band(panel, test, style)
    if f"train_{score}" in clients:
        _draw_train(panel, by_round[f"train_{score}"].median(), style)


def _draw_train(panel: Any, values: pd.Series[float], style: dict[str, Any]) -> None:
    panel.plot(values, color=style["color"], linestyle=":", linewidth=0.9)
