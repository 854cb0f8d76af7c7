"""How data are divided: labels and sizes per client, what clients see, and columns per party."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.report.pictures import COLOURS, client_title, drawing, legend_below, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from tacit.records.portrait import Portrait

FEW_CLIENTS = 8  # whose bars can stand beside each other
BAR_SPACE = 0.84  # of the space of a label is for its bars
MOST_TICKS = 12
MOST_COLUMN_NAMES = 40


@drawing
def draw_portraits(portraits: Sequence[Portrait]) -> Figure:
    """Who holds what under the first seed: a row of three panels per split.

    They have the labels per client, for training and for the local test, and the clients' sizes.
    """
    seed = portraits[0].seed
    shown = [portrait for portrait in portraits if portrait.seed == seed]
    several_datasets = len({portrait.dataset for portrait in portraits}) > 1
    figure, axes = panels_of(len(shown), 3, height=2.6)
    for row, portrait in zip(axes, shown, strict=True):
        title = portrait.split
        if several_datasets:
            title = f"{portrait.dataset}: {title}"
        _draw_labels(row[0], portrait, portrait.train, f"{title}, train")
        _draw_labels(row[1], portrait, portrait.test, f"{title}, local test")
        _draw_sizes(row[2], portrait)
    legend_below(figure, axes.flat)
    return figure


@drawing
def draw_examples(portrait: Portrait, pictures: Sequence[NDArray[np.float32]]) -> Figure:
    """Pictures as each client sees them, noise included: a row per client.

    A client's pictures are (pictures, channels, height, width).
    """
    most_pictures = max(map(len, pictures))
    figure, axes = panels_of(len(pictures), most_pictures, height=1.25, width=1.2)
    for client, (row, client_pictures) in enumerate(zip(axes, pictures, strict=True)):
        for panel in row:
            panel.set_axis_off()
        for panel, picture in zip(row, client_pictures, strict=False):
            pixels = np.clip(picture.transpose(1, 2, 0), 0, 1)
            colours = "gray_r" if pixels.shape[2] == 1 else None
            panel.imshow(pixels.squeeze(), cmap=colours, vmin=0, vmax=1)
        label = f"client {portrait.clients[client]}"
        if any(portrait.noise):
            label += f"\nnoise {portrait.noise[client]:.2g}"
        row[0].set_axis_on()
        row[0].set(xticks=[], yticks=[])
        row[0].set_ylabel(label, fontsize=8)
    figure.suptitle(portrait.split, fontsize=10)
    return figure


@drawing
def draw_holdings(
    held_columns: Sequence[Sequence[int]],
    held_rows: Sequence[Sequence[int]],
    column_names: Sequence[str],
    people: int,
) -> Figure:
    """Which party holds which columns, and about how many people.

    `held_columns` and `held_rows` are the numbers of each party's columns and rows.
    """
    figure, axes = panels_of(1, 2, height=max(2.6, 0.24 * len(column_names)))
    _draw_columns(axes[0, 0], held_columns, column_names)
    _draw_people(axes[0, 1], held_rows, people)
    entries = axes[0, 1].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower right", ncols=2, frameon=False)
    return figure


def _draw_columns(
    panel: Any, held_columns: Sequence[Sequence[int]], column_names: Sequence[str]
) -> None:
    """A coloured cell where a party holds a column."""
    parties = len(held_columns)
    shades = np.zeros((len(column_names), parties))
    for party, columns in enumerate(held_columns):
        shades[columns, party] = (party + 1) / parties
    nothing_hidden = np.ma.masked_equal(shades, 0)
    panel.imshow(nothing_hidden, aspect="auto", cmap="cividis", vmin=0, vmax=1)
    step = max(1, math.ceil(len(column_names) / MOST_COLUMN_NAMES))
    names = [textwrap.shorten(name, 24) for name in column_names[::step]]
    panel.set_yticks(range(0, len(column_names), step), names, fontsize=7)
    _name_parties(panel, parties)
    panel.set_title("columns per party", fontsize=10)


def _draw_people(panel: Any, held_rows: Sequence[Sequence[int]], people: int) -> None:
    """A bar per party: the people known to all, and on top those known to it alone."""
    known_to_all = len(set.intersection(*(set(rows) for rows in held_rows)))
    others = [len(rows) - known_to_all for rows in held_rows]
    parties = range(len(held_rows))
    panel.bar(
        parties, [known_to_all] * len(parties), color=COLOURS[0], label="known to all parties"
    )
    panel.bar(
        parties, others, bottom=known_to_all, color=COLOURS[1], label="known to this party alone"
    )
    _name_parties(panel, len(parties))
    panel.set_title(f"people per party, of {people:,}", fontsize=10)


def _name_parties(panel: Any, parties: int) -> None:
    panel.set_xticks(range(parties), [f"party {party}" for party in range(parties)])


def _draw_labels(
    panel: Any, portrait: Portrait, counts: Sequence[Sequence[int]], title: str
) -> None:
    """How many samples of each label every client has: bars, or a shaded matrix of many clients."""
    clients = len(portrait.clients)
    labels = range(len(portrait.labels))
    if clients > FEW_CLIENTS:
        image = panel.imshow(counts, cmap="Blues", aspect="auto")
        panel.figure.colorbar(image, ax=panel, label="samples")
        panel.set_ylabel("client")
    else:
        width = BAR_SPACE / clients
        for client, row in enumerate(counts):
            centres = [label + (client + 0.5) * BAR_SPACE / clients - 0.42 for label in labels]
            name = client_title(portrait.clients[client])
            panel.bar(centres, row, width=width, color=COLOURS[client], label=name)
        panel.set_ylabel("samples")
    step = max(1, math.ceil(len(labels) / MOST_TICKS))
    _name_ticks(panel, labels[::step], portrait.labels[::step])
    panel.set_xlabel("label")
    panel.set_title(textwrap.fill(title, 44), fontsize=10)


def _draw_sizes(panel: Any, portrait: Portrait) -> None:
    """How many samples every client has; below its name, the noise on its features."""
    clients = range(len(portrait.clients))
    train = [sum(row) for row in portrait.train]
    test = [sum(row) for row in portrait.test]
    panel.bar(clients, train, color="#444444", label="train")
    panel.bar(clients, test, bottom=train, color="#BBBBBB", label="local test")
    names = list(portrait.clients)
    if any(portrait.noise):
        levels = [f"noise {level:.2g}" for level in portrait.noise]
        names = [f"{name}\n{level}" for name, level in zip(names, levels, strict=True)]
    step = max(1, math.ceil(len(clients) / MOST_TICKS))
    _name_ticks(panel, clients[::step], names[::step])
    panel.set_xlabel("client")
    panel.set_title("sizes", fontsize=10)


def _name_ticks(panel: Any, positions: Sequence[int], names: Sequence[str]) -> None:
    """Names under an axis, slanted where they are long."""
    short = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
    letters = sum(map(len, short))
    slanted = {"rotation": 35, "ha": "right"} if letters > 50 else {}
    panel.set_xticks(positions, short, fontsize=8, **slanted)
