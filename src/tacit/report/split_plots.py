"""Drawings of how data are divided: labels and sizes per client, what clients see, and columns per party."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.report.pictures import COLOURS, called, drawing, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from tacit.data.splits.columns import Holding
    from tacit.study.portrait import Portrait

FEW = 8  # clients whose bars can stand beside each other


@drawing
def draw_portraits(portraits: Sequence[Portrait]) -> Figure:
    """Who holds what: a row per split, with labels per client for training and local test, and sizes per client."""
    seed, several = portraits[0].seed, len({one.dataset for one in portraits}) > 1
    shown = [one for one in portraits if one.seed == seed]
    figure, axes = panels_of(len(shown), 3, height=2.6)
    for row, one in zip(axes, shown, strict=True):
        title = f"{one.dataset}: {one.split}" if several else one.split
        _labels(row[0], one, one.train, f"{title}, train")
        _labels(row[1], one, one.test, f"{title}, local test")
        _sizes(row[2], one)
    handles = {
        text: bar
        for panel in axes.flat
        for bar, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    below: Any = {"loc": "outside lower center", "ncols": min(6, len(handles)), "frameon": False}
    figure.legend(handles.values(), handles.keys(), **below)
    return figure


@drawing
def draw_examples(portrait: Portrait, pictures: Sequence[NDArray[np.float32]]) -> Figure:
    """Pictures as each client sees them: a row of (channels, height, width) pictures per client, noise included."""
    wide = max(map(len, pictures))
    figure, axes = panels_of(len(pictures), wide, height=1.25, width=1.2)
    for k, (row, seen) in enumerate(zip(axes, pictures, strict=True)):
        level = f"\nnoise {portrait.noise[k]:.2g}" if any(portrait.noise) else ""
        for panel in row:
            panel.set_axis_off()
        for panel, picture in zip(row, seen, strict=False):
            shown = np.clip(picture.transpose(1, 2, 0), 0, 1)
            panel.imshow(
                shown.squeeze(), cmap="gray_r" if shown.shape[2] == 1 else None, vmin=0, vmax=1
            )
        row[0].set_axis_on()
        row[0].set(xticks=[], yticks=[])
        row[0].set_ylabel(f"client {portrait.clients[k]}{level}", fontsize=8)
    figure.suptitle(portrait.split, fontsize=10)
    return figure


@drawing
def draw_holdings(holdings: Sequence[Holding], columns: Sequence[str], people: int) -> Figure:
    """Which party holds which columns, and about how many people."""
    figure, axes = panels_of(1, 2, height=max(2.6, 0.24 * len(columns)))
    held = np.zeros((len(columns), len(holdings)))
    for k, holding in enumerate(holdings):
        held[holding.columns, k] = k + 1
    shades = held / max(1, len(holdings))
    axes[0, 0].imshow(np.ma.masked_equal(shades, 0), aspect="auto", cmap="cividis", vmin=0, vmax=1)
    step = max(1, math.ceil(len(columns) / 40))
    axes[0, 0].set_yticks(
        range(0, len(columns), step), [textwrap.shorten(c, 24) for c in columns[::step]], fontsize=7
    )
    axes[0, 0].set_xticks(range(len(holdings)), [f"party {k}" for k in range(len(holdings))])
    axes[0, 0].set_title("columns per party", fontsize=10)
    common = len(set.intersection(*(set(holding.rows.tolist()) for holding in holdings)))
    own = [len(holding.rows) - common for holding in holdings]
    places = range(len(holdings))
    axes[0, 1].bar(places, [common] * len(holdings), color=COLOURS[0], label="known to all parties")
    axes[0, 1].bar(places, own, bottom=common, color=COLOURS[1], label="known to this party alone")
    axes[0, 1].set_xticks(places, [f"party {k}" for k in places])
    axes[0, 1].set_title(f"people per party, of {people:,}", fontsize=10)
    figure.legend(
        *axes[0, 1].get_legend_handles_labels(), loc="outside lower right", ncols=2, frameon=False
    )
    return figure


def _labels(panel: Any, portrait: Portrait, counts: Sequence[Sequence[int]], title: str) -> None:
    count, labels = len(portrait.clients), range(len(portrait.labels))
    if count > FEW:
        panel.figure.colorbar(
            panel.imshow(counts, cmap="Blues", aspect="auto"), ax=panel, label="samples"
        )
        panel.set_ylabel("client")
    else:
        for k, row in enumerate(counts):
            places = [label + (k + 0.5) * 0.84 / count - 0.42 for label in labels]
            panel.bar(
                places, row, width=0.84 / count, color=COLOURS[k], label=called(portrait.clients[k])
            )
        panel.set_ylabel("samples")
    step = max(1, math.ceil(len(labels) / 12))
    _name_ticks(panel, labels[::step], portrait.labels[::step])
    panel.set_xlabel("label")
    panel.set_title(textwrap.fill(title, 44), fontsize=10)


def _sizes(panel: Any, portrait: Portrait) -> None:
    places = range(len(portrait.clients))
    train, test = ([sum(row) for row in side] for side in (portrait.train, portrait.test))
    panel.bar(places, train, color="#444444", label="train")
    panel.bar(places, test, bottom=train, color="#BBBBBB", label="local test")
    step = max(1, math.ceil(len(places) / 12))
    noisy = any(portrait.noise)
    names = [
        f"{n}\nnoise {s:.2g}" if noisy else n
        for n, s in zip(portrait.clients, portrait.noise, strict=True)
    ]
    _name_ticks(panel, places[::step], names[::step])
    panel.set_xlabel("client")
    panel.set_title("sizes", fontsize=10)


def _name_ticks(panel: Any, places: Sequence[int], names: Sequence[str]) -> None:
    """Names under an axis, slanted where they are long."""
    short = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
    slanted = {"rotation": 35, "ha": "right"} if sum(map(len, short)) > 50 else {}
    panel.set_xticks(places, short, fontsize=8, **slanted)
