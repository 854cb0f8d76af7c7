"""Which of the clients' neurons became one, as lines from above to below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.report.neuron_sharing import Sharing
from tacit.report.pictures import COLOURS, GREY, INK, drawing, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 2  # positions between two clients' neurons
MOST_NAMES = 16  # clients whose names fit above their neurons


@drawing
def draw_matching(
    assignment: Sequence[Sequence[Sequence[int]]],
    widths: Sequence[int],
    names: Sequence[str],
    noun: str = "neurons",
) -> Figure:
    """Which of the clients' neurons (or other vectors) became one: a panel per hidden layer.

    `assignment[layer][client]` is the global neuron of each of the client's own, and `widths` are
    those of the fused network. Of a layer that is too large for lines, bars tell how many clients
    share its neurons.
    """
    figure, axes = panels_of(len(widths), 1, height=3.3, width=10)
    layers = zip(axes[:, 0], assignment, widths, strict=True)
    for number, (panel, places, width) in enumerate(layers, 1):
        sharing = Sharing.of(places, width)
        if sharing.is_small:
            MatchingPanel(panel, sharing, names).draw(noun)
        else:
            _draw_share_counts(panel, sharing, noun)
        title = f"{sharing.local:,} local {noun} become {width:,}"
        if len(widths) > 1:
            title = f"hidden layer {number}: {title}"
        panel.set_title(title, fontsize=10)
    return figure


def _draw_share_counts(panel: Any, sharing: Sharing, noun: str) -> None:
    shares = sharing.shares
    panel.bar(range(1, len(shares) + 1), shares, color=COLOURS[0])
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set(xlabel="clients that share one", ylabel=f"global {noun}")


@dataclass(frozen=True)
class MatchingPanel:
    """Clients' neurons above, each client's in the order of the global ones below.

    So no two lines of a client cross.
    """

    panel: Any  # matplotlib's axes
    sharing: Sharing
    names: Sequence[str]

    @property
    def width(self) -> int:
        """Positions above: all local neurons, and gaps between the clients."""
        return self.sharing.local + GAP * (len(self.names) - 1)

    def draw(self, noun: str) -> None:
        start = 0.5
        for client, neurons in enumerate(self.sharing.places):
            self._draw_client(client, neurons, start)
            start += len(neurons) + GAP
        self._draw_global_neurons()
        self.panel.set(xlim=(-1, self.width + 1), ylim=(-0.25, 1.15), xticks=[], yticks=[])
        self.panel.spines[:].set_visible(False)
        label = f"global {noun}, by the number of clients that share them"
        self.panel.set_xlabel(label, fontsize=8)

    def _position_below(self, rank: float) -> float:
        """Where the global neuron of this rank stands."""
        return rank * self.width / len(self.sharing.order)

    def _draw_client(self, client: int, neurons: Sequence[int], start: float) -> None:
        """A client's neurons, its name, and a line from each neuron to the global one."""
        ranks = {neuron: rank for rank, neuron in enumerate(self.sharing.order)}
        ends = sorted(self._position_below(ranks[neuron] + 0.5) for neuron in neurons)
        starts = [start + number for number in range(len(ends))]
        colour = COLOURS[client % len(COLOURS)]
        if ends:
            self._draw_lines(starts, ends, colour)
        self.panel.scatter(starts, [1] * len(starts), s=6, color=colour, zorder=3)
        if len(self.names) <= MOST_NAMES:
            middle = start + (len(ends) - 1) / 2
            name = textwrap.shorten(self.names[client], 24)
            self.panel.text(middle, 1.05, name, ha="center", fontsize=8, color=colour)

    def _draw_lines(self, starts: Sequence[float], ends: Sequence[float], colour: str) -> None:
        """Curves from above to below, as one path."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        corners: list[tuple[float, float]] = []
        for above, below in zip(starts, ends, strict=True):
            corners += [(above, 1), (above, 0.5), (below, 0.5), (below, 0)]
        codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4] * len(ends)
        lines = Path(corners, codes)
        patch = PathPatch(lines, fill=False, edgecolor=colour, linewidth=0.8, alpha=0.6)
        self.panel.add_patch(patch)

    def _draw_global_neurons(self) -> None:
        """The global neurons, the most shared first and largest, and a mark for each count."""
        order = self.sharing.order
        counts = [len(self.sharing.owners[neuron]) for neuron in order]
        sizes = [40 * count / max(counts) for count in counts]
        positions = [self._position_below(rank + 0.5) for rank in range(len(order))]
        self.panel.scatter(positions, [0] * len(order), s=sizes, color=INK, zorder=3)
        for count in sorted(set(counts)):
            first = counts.index(count)
            end = len(order) - counts[::-1].index(count)
            ends = [self._position_below(first + 0.1), self._position_below(end - 0.1)]
            self.panel.plot(ends, [-0.1, -0.1], color=GREY, linewidth=1)
            middle = self._position_below((first + end) / 2)
            self.panel.text(middle, -0.13, str(count), ha="center", va="top", fontsize=8)
