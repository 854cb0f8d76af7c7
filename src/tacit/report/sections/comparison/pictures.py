"""The comparison as a heat map."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.report.pictures import drawing
from tacit.report.study_tables import is_reference

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


@drawing
def draw_comparison(table: pd.DataFrame, title: str) -> Figure:
    """A shaded cell for every method and column; the references only if there is nothing else."""
    from matplotlib.figure import Figure

    methods = [name for name in table.index if not is_reference(str(name))]
    compared = table.loc[methods or list(table.index)].astype(float)
    shown = compared.dropna(axis=1, how="all")
    if shown.empty:  # every run diverged
        shown = compared
    rows, columns = shown.shape
    figure = Figure(figsize=(2.2 + 1.5 * columns, 1.2 + 0.38 * rows), layout="constrained")
    panel = figure.subplots()
    values = shown.to_numpy()
    image = panel.imshow(values, cmap="cividis", aspect="auto")
    column_names = [textwrap.fill(str(name), 18) for name in shown.columns]
    panel.set_xticks(range(columns), column_names, fontsize=8)
    panel.set_yticks(range(rows), [str(name) for name in shown.index], fontsize=8)
    _write_values(panel, values)
    panel.set_title(title, fontsize=10)
    if not np.isnan(values).all():
        figure.colorbar(image, ax=panel)
    return figure


def _write_values(panel: Any, values: NDArray[np.float64]) -> None:
    """Each cell's number, white where the cell is dark."""
    numbers = values[~np.isnan(values)]
    middle = (numbers.min() + numbers.max()) / 2 if len(numbers) else math.nan
    for (row, column), value in np.ndenumerate(values):
        text = "diverged" if math.isnan(value) else f"{value:.3f}"
        colour = "white" if value < middle else "black"
        panel.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
