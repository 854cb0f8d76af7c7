"""The pictures of a report, as SVG text. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's
DASHES = ("-", "--", ":", "-.")


def draw_rounds(rounds: pd.DataFrame, metric: str, *, ylabel: str) -> str:
    """The metric per round, a panel per split and a line per algorithm; a band where seeds or settings differ.

    A centralised run is a dashed reference line in every panel.
    """
    central = rounds["algorithm"].str.startswith("centralised")
    reference = rounds[central].groupby("round")[metric].mean()
    rounds = rounds if central.all() else rounds[~central]
    figure, panels = _panels(list(rounds["split"].unique()))
    if central.any() and not central.all():
        for panel in panels.values():
            panel.plot(reference, label="centralised", color="#777777", linestyle="--")
    for k, algorithm in enumerate(rounds["algorithm"].unique()):
        style = _style(k)
        mine = rounds[rounds["algorithm"] == algorithm]
        for split, panel in panels.items():
            by_round = mine[mine["split"] == split].groupby("round")[metric]
            if len(by_round):
                panel.plot(by_round.mean(), label=algorithm, **style)
                panel.fill_between(
                    by_round.min().index, by_round.min(), by_round.max(), color=style["color"], alpha=0.15
                )
    if metric == "loss" and rounds[metric].max() > 50 * rounds[metric].median():  # one that grows hides all others
        for panel in panels.values():
            _logarithmic(panel, "y")
    _label(figure, panels, ylabel)
    return to_svg(figure)


def draw_cost(rounds: pd.DataFrame, metric: str, *, ylabel: str) -> str:
    """The metric against the megabytes that all clients sent so far, a panel per split and a line per algorithm."""
    rounds = rounds[~rounds["algorithm"].str.startswith("centralised")]
    rounds = rounds.assign(sent=rounds.groupby("run", sort=False)["bytes_up"].cumsum() / 1e6)
    figure, panels = _panels(list(rounds["split"].unique()))
    for k, algorithm in enumerate(rounds["algorithm"].unique()):
        mine = rounds[rounds["algorithm"] == algorithm]
        for split, panel in panels.items():
            by_round = mine[mine["split"] == split].groupby("round")[["sent", metric]].mean()
            by_round = by_round[by_round["sent"] > 0]  # a method that sends nothing has no place on the axis
            if len(by_round):
                panel.plot(by_round["sent"], by_round[metric], label=algorithm, **_style(k))
    for panel in panels.values():
        _logarithmic(panel, "x")
    _label(figure, panels, ylabel, "megabytes sent")
    return to_svg(figure)


def draw_clients(clients: pd.DataFrame, metric: str, *, ylabel: str) -> str:
    """The metric per round and client, a panel per algorithm and split."""
    clients = clients.assign(panel=clients["algorithm"] + ", " + clients["split"])
    figure, panels = _panels(list(clients["panel"].unique()))
    for title, panel in panels.items():
        for k, (client, mine) in enumerate(clients[clients["panel"] == title].groupby("client")):
            panel.plot(mine.groupby("round")[metric].mean(), label=f"client {client}", color=COLOURS[k % len(COLOURS)])
    _label(figure, panels, ylabel)
    return to_svg(figure)


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element that can stand in a page."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
    )
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _panels(titles: list[str]) -> tuple[Figure, dict[str, Any]]:
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(titles), 3)
    rows = math.ceil(len(titles) / columns)
    with matplotlib.rc_context({"svg.hashsalt": "tacit"}):
        figure = Figure(figsize=(4.2 * columns, 3.0 * rows))
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=True)
    for spare in list(axes.flat)[len(titles) :]:
        spare.set_visible(False)
    return figure, dict(zip(titles, axes.flat, strict=False))


def _logarithmic(panel: Any, axis: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set(**{f"{axis}scale": "log"})
    ruler = getattr(panel, f"{axis}axis")
    low, high = ruler.get_view_interval()
    ruler.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,), numticks=6))
    ruler.set_major_formatter("{x:g}")
    ruler.set_minor_formatter(NullFormatter())


def _style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}


def _label(figure: Figure, panels: dict[str, Any], ylabel: str, xlabel: str = "round") -> None:
    for title, panel in panels.items():
        panel.set_title(textwrap.fill(str(title), 44), fontsize=10)
        panel.grid(alpha=0.3)
        panel.set_xlabel(xlabel)
        panel.tick_params(labelbottom=True)
        if xlabel == "round":
            panel.xaxis.get_major_locator().set_params(integer=True)
    next(iter(panels.values())).set_ylabel(ylabel)
    handles = {
        text: line for panel in panels.values() for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.tight_layout()
    below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "frameon": False}
    wide = int(45 * figure.get_figwidth() / 4.2) // (max(map(len, handles), default=1) + 5)  # letters that fit beside
    figure.legend(handles.values(), handles.keys(), ncols=max(1, min(len(handles), 6, wide)), **below)
