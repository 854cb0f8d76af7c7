"""Drawings of fusions: scores beside their baselines, widths before and after, and which neurons became one."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.curves import SCORES
from tacit.report.fusions import Sharing, last_records, score_rows, width_rows
from tacit.report.pictures import COLOURS, called, drawing, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.report.tables import Tables

GREY, INK = "#777777", "#222222"
GAP = 2  # places between two clients' neurons
NAMED = 16  # clients whose names fit above their neurons


def fusion_pictures(results: Tables) -> dict[str, Callable[[], Figure]]:
    """Every picture that fusions have, by name; the matching is that of the first run that has ended."""
    last = last_records(results)
    if not last:
        return {}
    found: dict[str, Callable[[], Figure]] = {"widths": lambda: draw_widths(width_rows(results))}
    if rows := score_rows(results):
        found["fusion"] = lambda: draw_scores(rows, f"global test {SCORES[results.score]}")
    done = [run for run, record in last.items() if "assignment" in record["fusion"]]
    if done:
        found["matching"] = lambda: _draw_run(results, done[0], last[done[0]]["fusion"])
    return found


@drawing
def draw_scores(rows: Sequence[dict[str, Any]], label: str) -> Figure:
    """What local networks, their average, the fused networks and the ensemble reach: dots, and a bar at their mean."""
    figure, panels = _row_panels(rows)
    colours, values = _colours(rows), [one["value"] for row in rows for one in row["values"]]
    low, high = (
        max(-1.0, min(values)),
        max(values),
    )  # an R² that goes astray would flatten the others
    pad = 0.05 * (high - low) or 0.05
    for panel, mine in panels:
        for k, row in enumerate(mine):
            dots = [one["value"] for one in row["values"]]
            colour = GREY if row["baseline"] else colours[row["method"]]
            panel.scatter(dots, [k] * len(dots), s=28, color=colour, alpha=0.6)
            panel.vlines(row["mean"], k - 0.3, k + 0.3, color=INK, linewidth=2)
        panel.set_yticks(range(len(mine)), [row["name"] for row in mine], fontsize=8)
        panel.set_ylim(len(mine) - 0.5, -0.5)
        panel.set_xlabel(label)
        panel.set_xlim(low - pad, high + pad)
    return figure


@drawing
def draw_widths(rows: Sequence[dict[str, Any]]) -> Figure:
    """Each hidden layer's width in the fused network, within that of all local networks together."""
    colours = _colours(rows)
    layers = [
        {
            **row,
            **layer,
            "name": f"{row['method']}, layer {k + 1}" if len(row["layers"]) > 1 else row["method"],
        }
        for row in rows
        for k, layer in enumerate(row["layers"])
    ]
    figure, panels = _row_panels(layers)
    for panel, mine in panels:
        places, high = range(len(mine)), max(row["local"] for row in layers)
        shades = [colours[row["method"]] for row in mine]
        panel.barh(
            places,
            [row["local"] for row in mine],
            color=shades,
            alpha=0.3,
            label="all local networks together",
        )
        panel.barh(places, [row["fused"] for row in mine], color=shades, label="fused network")
        ends = [k + side for k in places for side in (-0.45, 0.45)]
        panel.vlines(
            [row["widest"] for row in mine],
            ends[::2],
            ends[1::2],
            color=INK,
            linewidth=2,
            label="widest local network",
        )
        for k, row in enumerate(mine):
            panel.text(
                row["local"] + 0.02 * high,
                k,
                f"{row['fused']:g} of {row['local']:g}",
                va="center",
                fontsize=8,
            )
        panel.set_yticks(places, [row["name"] for row in mine], fontsize=8)
        panel.set_ylim(len(mine) - 0.5, -0.5)
        panel.set_xlim(0, 1.3 * high)
        panel.set_xlabel("hidden neurons")
    below: Any = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    figure.legend(*panels[0][0].get_legend_handles_labels(), **below)
    return figure


@drawing
def draw_matching(
    assignment: Sequence[Sequence[Sequence[int]]],
    widths: Sequence[int],
    names: Sequence[str],
    parts: str = "neurons",
) -> Figure:
    """Which of the clients' neurons, or whatever `parts` are, became one: a panel per hidden layer, coloured by client.

    `assignment[layer][client]` is the global neuron of each of the client's own, and `widths` are those of the fused
    network. Of a layer that is too large for lines, bars tell how many clients share its neurons.
    """
    figure, axes = panels_of(len(widths), 1, height=3.3, width=10)
    for number, (panel, places, width) in enumerate(
        zip(axes[:, 0], assignment, widths, strict=True), 1
    ):
        sharing = Sharing.of(places, width)
        if sharing.is_small:
            _draw_lines(panel, sharing, names, parts)
        else:
            shares = sharing.shares
            panel.bar(range(1, len(shares) + 1), shares, color=COLOURS[0])
            panel.xaxis.get_major_locator().set_params(integer=True)
            panel.set(xlabel="clients that share one", ylabel=f"global {parts}")
        layer = f"hidden layer {number}: " if len(widths) > 1 else ""
        text = f"{layer}{sharing.local:,} local {parts} become {width:,}"
        panel.set_title(text, fontsize=10)
    return figure


def _draw_run(results: Tables, run: str, fusion: dict[str, Any]) -> Figure:
    figure = draw_matching(
        fusion["assignment"], fusion["widths"], [called(one) for one in results.client_names(run)]
    )
    figure.suptitle(
        f"{results.names[run]}, {results.labels[run][results.columns]}, seed {results.runs[run].seed}"
    )
    return figure


def _draw_lines(panel: Any, sharing: Sharing, names: Sequence[str], parts: str) -> None:
    """Clients' parts above, each client's in the order of the global ones below: no two lines of a client cross."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    total, width = sharing.local + GAP * (len(names) - 1), len(sharing.order)
    below = {neuron: (rank + 0.5) * total / width for rank, neuron in enumerate(sharing.order)}
    place = 0.5
    for client, own in enumerate(sharing.places):
        colour, ends = COLOURS[client % len(COLOURS)], sorted(below[neuron] for neuron in own)
        starts = [place + k for k in range(len(ends))]
        corners = [
            point
            for x, y in zip(starts, ends, strict=True)
            for point in ((x, 1), (x, 0.5), (y, 0.5), (y, 0))
        ]
        codes = [Path.MOVETO, *[Path.CURVE4] * 3] * len(ends)
        if corners:
            panel.add_patch(
                PathPatch(
                    Path(corners, codes), fill=False, edgecolor=colour, linewidth=0.8, alpha=0.6
                )
            )
        panel.scatter(starts, [1] * len(starts), s=6, color=colour, zorder=3)
        if len(names) <= NAMED:
            middle = place + (len(ends) - 1) / 2
            panel.text(
                middle,
                1.05,
                textwrap.shorten(names[client], 24),
                ha="center",
                fontsize=8,
                color=colour,
            )
        place += len(ends) + GAP
    owners = [len(sharing.owners[neuron]) for neuron in sharing.order]
    sizes = [40 * count / max(owners) for count in owners]
    panel.scatter(
        [below[neuron] for neuron in sharing.order], [0] * width, s=sizes, color=INK, zorder=3
    )
    for count in sorted(set(owners)):
        first, last = owners.index(count), width - owners[::-1].index(count)
        panel.plot(
            [(first + 0.1) * total / width, (last - 0.1) * total / width],
            [-0.1, -0.1],
            color=GREY,
            linewidth=1,
        )
        panel.text(
            (first + last) / 2 * total / width, -0.13, str(count), ha="center", va="top", fontsize=8
        )
    panel.set(xlim=(-1, total + 1), ylim=(-0.25, 1.15), xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.set_xlabel(f"global {parts}, by the number of clients that share them", fontsize=8)


def _row_panels(
    rows: Sequence[dict[str, Any]],
) -> tuple[Figure, list[tuple[Any, list[dict[str, Any]]]]]:
    """A panel per split, with the rows that belong there."""
    by_split: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_split.setdefault(row["split"], []).append(row)
    columns, most = min(2, len(by_split)), max(map(len, by_split.values()))
    figure, axes = panels_of(
        math.ceil(len(by_split) / columns), columns, height=1.2 + 0.36 * most, width=6.2
    )
    for spare in axes.flat[len(by_split) :]:
        spare.set_visible(False)
    for panel, split in zip(axes.flat, by_split, strict=False):
        panel.set_title(textwrap.fill(split, 44), fontsize=10)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
    return figure, list(zip(axes.flat, by_split.values(), strict=False))


def _colours(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A colour for every method."""
    methods = dict.fromkeys(row["method"] for row in rows if row["method"])
    return {method: COLOURS[k % len(COLOURS)] for k, method in enumerate(methods)}
