"""The columns that matter most, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tacit.report.pictures import drawing, line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawing
def draw_importance(
    by_method: Mapping[str, Mapping[str, float]], columns: Sequence[str], label: str
) -> Figure:
    """A group of bars per column, a bar per method."""
    from matplotlib.figure import Figure

    height = 1.2 + 0.22 * len(columns) * max(1, len(by_method) ** 0.5)
    figure = Figure(figsize=(6.5, height), layout="constrained")
    panel = figure.subplots()
    width = 0.8 / len(by_method)
    for number, (method, drops) in enumerate(by_method.items()):
        places = [position + number * width for position in range(len(columns))]
        values = [drops.get(column, 0.0) for column in columns]
        panel.barh(places, values, width, label=method, color=line_style(number)["color"])
    middle = 0.4 - width / 2
    panel.set_yticks([position + middle for position in range(len(columns))], columns, fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel(label)
    panel.legend(fontsize=8)
    return figure
