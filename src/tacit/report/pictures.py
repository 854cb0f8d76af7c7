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
COLOURS = ("#18549e", "#df400f", "#00a955", "#c1337c", "#79381c", "#4881f6", "#4d2d32", "#8692b6")
DASHES = ("-", "--", ":", "-.")


def drawing(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """For functions that draw: a dollar in somebody's name is a dollar, not the beginning of a formula."""

    @functools.wraps(draw)
    def drawn(*arguments: P.args, **options: P.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}):
            return draw(*arguments, **options)

    return drawn


class Picture:
    """A matplotlib figure that shows itself in a notebook; `save` writes it as svg, png or pdf, by the file's name."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        kind = path.suffix.removeprefix(".").lower()
        if kind not in ("svg", "png", "pdf"):
            raise StudyError(f"{path}: expected a name that ends in .svg, .png or .pdf")
        if (
            not path.parent.is_dir() and not path.parent.parent.is_dir()
        ):  # one new folder is meant, more are a mistake
            raise StudyError(f"{path}: there is no folder {path.parent.parent} to save it in")
        with replacing(path, "wb") as file:
            file.write(self._drawn(kind))
        return path

    def _drawn(self, kind: str) -> bytes:
        import matplotlib

        buffer = io.BytesIO()
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type")) if kind == "svg" else None
        with matplotlib.rc_context({"svg.hashsalt": "tacit", "svg.fonttype": "none"}):
            self.figure.savefig(buffer, format=kind, dpi=120, metadata=empty)
        self.figure.set_layout_engine(
            "none"
        )  # places stay as they are; the next format need not find them again
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self._drawn("png")


def panels_of(
    rows: int, columns: int, *, height: float = 3.0, width: float = 4.2, shared: bool = False
) -> tuple[Figure, Any]:
    """A figure of so many panels, and their axes as a matrix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)


def style_of(place: int) -> dict[str, Any]:
    """A colour and, once all have been used, another dash."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def called(client: str) -> str:
    """A client's name, or its number with a word before it."""
    return f"client {client}" if client.isdigit() else client
