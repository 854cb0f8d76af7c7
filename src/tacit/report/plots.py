"""Pictures of results, for notebooks and files. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core.errors import StudyError, suggest
from tacit.report.curves import SCORES, is_reference
from tacit.report.fusion_plots import fusion_pictures
from tacit.report.pictures import Picture, drawing, panels_of, style_of
from tacit.report.split_plots import draw_portraits
from tacit.study.tested_clients import is_crowd

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tacit.report.tables import Tables

SHOWN_PANELS = 24  # of clients' curves; all of them are in clients.csv


def plot(results: Tables, kind: str | None = None) -> Picture:
    """A picture of the results: accuracy (or r2), loss, cost, clients, comparison or splits.

    Where networks were fused also: fusion, widths and matching.
    """
    drawings = pictures(results)
    wanted = kind or results.score
    if wanted not in drawings:
        raise StudyError(
            f"there is no picture {wanted!r} of these results; {suggest(wanted, drawings)}"
        )
    return Picture(drawings[wanted]())


def pictures(results: Tables) -> dict[str, Callable[[], Figure]]:
    """Every picture that these results have, by name."""
    score, rounds = results.score, results.frame()
    drawings: dict[str, Callable[[], Figure]] = {}
    if len(rounds):
        rounds = _named(results, rounds)
        label = f"global test {SCORES[score]}"
        drawings = {
            score: lambda: draw_rounds(rounds, score, ylabel=label),
            "loss": lambda: draw_rounds(rounds, "loss", ylabel="global test loss"),
            "cost": lambda: draw_cost(rounds, score, ylabel=label),
            "clients": lambda: draw_clients(_with_crowds(results, results.client_frame()), score),
            "comparison": lambda: draw_comparison(results.table(), label),
        }
    drawings |= fusion_pictures(results)
    if results.portraits:
        drawings["splits"] = lambda: draw_portraits(results.portraits)
    return drawings


def write_figures(results: Tables) -> list[Path]:
    """Every picture as svg and png, in the folder figures/."""
    made = [(name, Picture(drawing())) for name, drawing in pictures(results).items()]
    return [
        picture.save(results.folder / "figures" / f"{name}.{kind}")
        for name, picture in made
        for kind in ("svg", "png")
    ]


@drawing
def draw_rounds(rounds: pd.DataFrame, metric: str, *, ylabel: str) -> Figure:
    """The metric per round, a panel per split and a line per algorithm; a band where seeds or settings differ.

    A centralised run is a dashed reference line in every panel.
    """
    central = rounds["algorithm"].map(is_reference)
    reference = rounds[central].groupby("round")[metric].mean()
    rounds = rounds if central.all() else rounds[~central]
    figure, panels = _panels(list(rounds["split"].unique()))
    if central.any() and not central.all():
        for panel in panels.values():
            panel.plot(reference, label="centralised", color="#222222", linestyle=(0, (1, 2)))
    for k, algorithm in enumerate(rounds["algorithm"].unique()):
        style = style_of(k)
        mine = rounds[rounds["algorithm"] == algorithm]
        for split, panel in panels.items():
            by_round = mine[mine["split"] == split].groupby("round")[metric]
            if len(by_round):
                panel.plot(by_round.mean(), label=algorithm, **style)
                low, high = by_round.min(), by_round.max()
                panel.fill_between(
                    low.index, low, high, color=style["color"], alpha=0.15, linewidth=0
                )
    if (
        metric == "loss" and rounds[metric].max() > 50 * rounds[metric].median()
    ):  # one that grows hides all others
        for panel in panels.values():
            _logarithmic(panel, "y")
    _label(figure, panels, ylabel)
    return figure


@drawing
def draw_cost(rounds: pd.DataFrame, score: str, *, ylabel: str) -> Figure:
    """The score against the megabytes that all clients have sent so far, a panel per split and a line per algorithm."""
    rounds = rounds[~rounds["algorithm"].map(is_reference)]
    rounds = rounds.assign(sent=rounds.groupby("run", sort=False)["bytes_up"].cumsum() / 1e6)
    figure, panels = _panels(list(rounds["split"].unique()) or ["centralised"])
    for k, algorithm in enumerate(rounds["algorithm"].unique()):
        mine = rounds[rounds["algorithm"] == algorithm]
        for split, panel in panels.items():
            by_round = mine[mine["split"] == split].groupby("round")[["sent", score]].mean()
            by_round = by_round[
                by_round["sent"] > 0
            ]  # a method that sends nothing has no place on the axis
            if len(by_round):
                panel.plot(by_round["sent"], by_round[score], label=algorithm, **style_of(k))
    for panel in panels.values():
        _logarithmic(panel, "x")
    _label(figure, panels, ylabel, "megabytes sent")
    return figure


@drawing
def draw_clients(clients: pd.DataFrame, score: str) -> Figure:
    """Local test (solid) and train (dotted) of each client, a panel per algorithm and split, under the first seed.

    Of a crowd, whose clients come and go: the median of each round, and a band from the lowest to the highest.
    """
    if "seed" in clients:  # client k holds other samples under another seed
        clients = clients[clients["seed"] == clients["seed"].iloc[0]]
    clients = clients.assign(panel=clients["algorithm"] + ", " + clients["split"])
    figure, panels = _panels(list(clients["panel"].unique())[:SHOWN_PANELS])
    for title, panel in panels.items():
        there = clients[clients["panel"] == title]
        if there["crowd"].any():
            _draw_crowd(panel, there, score)
            continue
        for k, (client, mine) in enumerate(there.groupby("client")):
            lies = " (attacker)" if "attacker" in mine and mine["attacker"].any() else ""
            by_round = mine.groupby("round")[[f"train_{score}", f"test_{score}"]].mean()
            panel.plot(
                by_round[f"test_{score}"],
                label=f"client {client!s}{lies}" if k < 12 else None,
                **style_of(k),
            )
            panel.plot(
                by_round[f"train_{score}"], color=style_of(k)["color"], linestyle=":", linewidth=0.9
            )
    _label(figure, panels, f"local {SCORES[score]} (dotted: train)")
    return figure


def _draw_crowd(panel: Any, clients: pd.DataFrame, score: str) -> None:
    honest = clients[~clients["attacker"].astype(bool)] if "attacker" in clients else clients
    by_round, style = honest.groupby("round"), style_of(0)
    test = by_round[f"test_{score}"]
    panel.plot(test.median(), label="median of the round's clients", **style)
    low, high = test.min(), test.max()
    panel.fill_between(low.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
    panel.plot(
        by_round[f"train_{score}"].median(), color=style["color"], linestyle=":", linewidth=0.9
    )


@drawing
def draw_comparison(table: pd.DataFrame, title: str) -> Figure:
    """The comparison table as a heat map."""
    from matplotlib.figure import Figure

    rows = [name for name in table.index if not is_reference(str(name))] or list(table.index)
    values = table.loc[rows].dropna(axis=1, how="all").astype(float)
    figure = Figure(
        figsize=(2.2 + 1.5 * values.shape[1], 1.2 + 0.38 * len(values)), layout="constrained"
    )
    panel = figure.subplots()
    image = panel.imshow(values.to_numpy(), cmap="cividis", aspect="auto")
    panel.set_xticks(
        range(values.shape[1]),
        [textwrap.fill(str(name), 18) for name in values.columns],
        fontsize=8,
    )
    panel.set_yticks(range(len(values)), [str(name) for name in values.index], fontsize=8)
    middle = (values.min().min() + values.max().max()) / 2
    for i, j in ((i, j) for i in range(len(values)) for j in range(values.shape[1])):
        value = values.to_numpy()[i, j]
        text = "diverged" if math.isnan(value) else f"{value:.3f}"
        panel.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color="white" if value < middle else "black",
        )
    panel.set_title(title, fontsize=10)
    figure.colorbar(image, ax=panel)
    return figure


def _named(results: Tables, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(algorithm=table["run"].map(results.names), split=table[results.columns])


def _with_crowds(results: Tables, table: pd.DataFrame) -> pd.DataFrame:
    return _named(results, table).assign(
        crowd=table["run"].map(lambda run: is_crowd(results.runs[run]))
    )


def _panels(titles: list[str]) -> tuple[Figure, dict[str, Any]]:
    columns = min(len(titles), 3)
    figure, axes = panels_of(math.ceil(len(titles) / columns), columns, shared=True)
    flat = list(axes.flat)
    for spare in flat[len(titles) :]:
        spare.set_visible(False)
    return figure, dict(zip(titles, flat, strict=False))


def _logarithmic(panel: Any, axis: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    if not panel.lines:  # nothing to show, as of a study whose runs all diverged
        return
    panel.set(**{f"{axis}scale": "log"})
    ruler = getattr(panel, f"{axis}axis")
    low, high = ruler.get_view_interval()
    ruler.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,), numticks=6))
    ruler.set_major_formatter("{x:g}")
    ruler.set_minor_formatter(NullFormatter())


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
        text: line
        for panel in panels.values()
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    below: Any = {"loc": "outside lower center", "frameon": False}
    wide = int(45 * figure.get_figwidth() / 4.2) // (
        max(map(len, handles), default=1) + 5
    )  # letters that fit beside
    figure.legend(
        handles.values(), handles.keys(), ncols=max(1, min(len(handles), 6, wide)), **below
    )
