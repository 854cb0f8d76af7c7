"""Calibration curves as lines, against the diagonal on which probabilities mean what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.line_panels import LinePanels
from tacit.report.pictures import INK, drawing, line_style
from tacit.report.study_tables import is_reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawing
def draw_calibration(curves: Sequence[dict[str, Any]]) -> Figure:
    """A panel per split, and a line per method: the first seed of each, on the global test set."""
    whole = [curve for curve in curves if curve["client"] is None]
    own = [curve for curve in whole if not is_reference(curve["method"])]
    drawn = LinePanels.of(list(dict.fromkeys(curve["split"] for curve in own or whole)))
    methods = list(dict.fromkeys(curve["method"] for curve in whole))
    for split, panel in drawn.panels.items():
        panel.plot([0, 1], [0, 1], color=INK, linestyle=(0, (1, 2)), label="as they say")
        for number, method in enumerate(methods):
            curve = _curve_of(whole, method, split)
            if curve is not None:
                points = curve["points"]
                predicted = [point[0] for point in points]
                observed = [point[1] for point in points]
                panel.plot(predicted, observed, label=method, marker="o", **line_style(number))
    drawn.label("how often it was so")
    for panel in drawn.panels.values():
        panel.set_xlabel("probability")
    return drawn.figure


def _curve_of(curves: Sequence[dict[str, Any]], method: str, split: str) -> dict[str, Any] | None:
    """The first one of this method and split; a reference stands in every panel."""
    for curve in curves:
        if curve["method"] == method and (curve["split"] == split or is_reference(method)):
            return curve
    return None
