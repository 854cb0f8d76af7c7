"""What every drawing shares: a figure that shows and saves itself, its colours and its panels."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from tacit.core.errors import StudyError
from tacit.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
# Apart for every kind of colour vision, and against white; the page uses the same.
COLOURS = (
    "#18549e",
    "#df400f",
    "#00a955",
    "#c1337c",
    "#79381c",
    "#4881f6",
    "#4d2d32",
    "#8692b6",
)
DASHES = ("-", "--", ":", "-.")
GREY = "#777777"
INK = "#222222"
FORMATS = ("svg", "png", "pdf")


def drawing(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """For functions that draw: a dollar in somebody's name does not begin a formula.

    A `matplotlibrc` in the current folder, which may be somebody else's, does not have LaTeX run.
    """

    @functools.wraps(draw)
    def draw_plain_text(*arguments: P.args, **options: P.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False, "text.usetex": False}):
            return draw(*arguments, **options)

    return draw_plain_text


class Picture:
    """A matplotlib figure that shows itself in a notebook and saves itself as svg, png or pdf."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        """Writes the picture in the format that the file's name ends in."""
        path = Path(path)
        suffix = path.suffix.removeprefix(".").lower()
        if suffix not in FORMATS:
            raise StudyError(f"{path}: expected a name that ends in .svg, .png or .pdf")
        folder = path.parent
        if not folder.is_dir() and not folder.parent.is_dir():  # one new folder is meant, not two
            raise StudyError(f"{path}: there is no folder {folder.parent} to save it in")
        with replacing(path, "wb") as file:
            file.write(self._encode(suffix))
        return path

    def _encode(self, suffix: str) -> bytes:
        import matplotlib

        buffer = io.BytesIO()
        metadata = None
        if suffix == "svg":  # nothing in the file that differs from one day to the next
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with matplotlib.rc_context({"svg.hashsalt": "tacit", "svg.fonttype": "none"}):
            self.figure.savefig(buffer, format=suffix, dpi=120, metadata=metadata)
        self.figure.set_layout_engine("none")  # the next format need not arrange the panels again
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self._encode("png")


def panels_of(
    rows: int, columns: int, *, height: float = 3.0, width: float = 4.2, shared: bool = False
) -> tuple[Figure, Any]:
    """A figure of so many panels, and their axes as a matrix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, axes


def hide_spare_panels(axes: Any, count: int) -> None:
    """Hides all panels of a matrix but the first ones."""
    for panel in axes.flat[count:]:
        panel.set_visible(False)


def legend_below(figure: Figure, panels: Any, columns: int = 6) -> None:
    """One legend for several panels, each entry once, below them."""
    handles = {}
    for panel in panels:
        for handle, text in zip(*panel.get_legend_handles_labels(), strict=True):
            handles[text] = handle
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=max(1, min(columns, len(handles))),
        frameon=False,
    )


def line_style(number: int) -> dict[str, Any]:
    """A colour and, once all have been used, another dash."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }


def client_title(name: str) -> str:
    """A client's name, or its number with a word before it."""
    return f"client {name}" if name.isdigit() else name
