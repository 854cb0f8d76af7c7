"""Drawings of fusions: scores beside their baselines, and widths before and after."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.matching_picture import draw_matching
from tacit.report.pictures import (
    COLOURS,
    GREY,
    INK,
    client_title,
    drawing,
    hide_spare_panels,
    legend_below,
    panels_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.report.study_tables import StudyTables

LOWEST_SCORE = -1.0  # that is drawn: an R² that goes astray would flatten the others
Row = dict[str, Any]


@drawing
def draw_scores(rows: Sequence[Row], label: str) -> Figure:
    """What local networks, their average, the fused networks and the ensemble reach.

    A dot is a value, a bar their mean.
    """
    figure, panels = _row_panels(rows)
    colours = _method_colours(rows)
    values = [dot["value"] for row in rows for dot in row["values"]]
    low = max(LOWEST_SCORE, min(values))
    high = max(values)
    margin = 0.05 * (high - low) or 0.05
    for panel, panel_rows in panels:
        for number, row in enumerate(panel_rows):
            dots = [dot["value"] for dot in row["values"]]
            colour = GREY if row["baseline"] else colours[row["method"]]
            panel.scatter(dots, [number] * len(dots), s=28, color=colour, alpha=0.6)
            panel.vlines(row["mean"], number - 0.3, number + 0.3, color=INK, linewidth=2)
        _name_rows(panel, [row["name"] for row in panel_rows])
        panel.set_xlabel(label)
        panel.set_xlim(low - margin, high + margin)
    return figure


@drawing
def draw_widths(rows: Sequence[Row]) -> Figure:
    """Each hidden layer's width in the fused network, within that of all local networks."""
    layers = _layer_rows(rows)
    colours = _method_colours(rows)
    figure, panels = _row_panels(layers)
    widest = max(row["local"] for row in layers)
    for panel, panel_rows in panels:
        _draw_width_bars(panel, panel_rows, [colours[row["method"]] for row in panel_rows])
        for number, row in enumerate(panel_rows):
            text = f"{row['fused']:g} of {row['local']:g}"
            panel.text(row["local"] + 0.02 * widest, number, text, va="center", fontsize=8)
        _name_rows(panel, [row["name"] for row in panel_rows])
        panel.set_xlim(0, 1.3 * widest)
        panel.set_xlabel("hidden neurons")
    first_panel, _ = panels[0]
    legend_below(figure, [first_panel], columns=3)
    return figure


def draw_run(results: StudyTables, run: str, fusion: dict[str, Any]) -> Figure:
    """Which neurons became one in a run."""
    names = [client_title(name) for name in results.client_names(run)]
    figure = draw_matching(fusion["assignment"], fusion["widths"], names)
    seed = results.outline.runs[run].seed
    figure.suptitle(f"{results.names[run]}, {results.column_of(run)}, seed {seed}")
    return figure


def _layer_rows(rows: Sequence[Row]) -> list[Row]:
    """A row per hidden layer."""
    layers = []
    for row in rows:
        for number, widths in enumerate(row["layers"], 1):
            name = row["method"]
            if len(row["layers"]) > 1:
                name = f"{name}, layer {number}"
            layers.append({**row, **widths, "name": name})
    return layers


def _draw_width_bars(panel: Any, rows: Sequence[Row], colours: Sequence[str]) -> None:
    positions = range(len(rows))
    local = [row["local"] for row in rows]
    fused = [row["fused"] for row in rows]
    widest = [row["widest"] for row in rows]
    panel.barh(positions, local, color=colours, alpha=0.3, label="all local networks together")
    panel.barh(positions, fused, color=colours, label="fused network")
    tops = [position - 0.45 for position in positions]
    bottoms = [position + 0.45 for position in positions]
    panel.vlines(widest, tops, bottoms, color=INK, linewidth=2, label="widest local network")


def _row_panels(rows: Sequence[Row]) -> tuple[Figure, list[tuple[Any, list[Row]]]]:
    """A panel per split, with the rows that belong there."""
    by_split: dict[str, list[Row]] = {}
    for row in rows:
        by_split.setdefault(row["split"], []).append(row)
    columns = min(2, len(by_split))
    most_rows = max(map(len, by_split.values()))
    figure, axes = panels_of(
        math.ceil(len(by_split) / columns), columns, height=1.2 + 0.36 * most_rows, width=6.2
    )
    hide_spare_panels(axes, len(by_split))
    panels = list(zip(axes.flat, by_split, strict=False))
    for panel, split in panels:
        panel.set_title(textwrap.fill(split, 44), fontsize=10)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
    return figure, [(panel, by_split[split]) for panel, split in panels]


def _name_rows(panel: Any, names: Sequence[str]) -> None:
    """The first row stands at the top."""
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.set_ylim(len(names) - 0.5, -0.5)


def _method_colours(rows: Sequence[Row]) -> dict[str, str]:
    methods = dict.fromkeys(row["method"] for row in rows if row["method"])
    return {method: COLOURS[k % len(COLOURS)] for k, method in enumerate(methods)}
