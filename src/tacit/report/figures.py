"""The report's pictures, for notebooks and files. matplotlib is imported when one is drawn."""

from __future__ import annotations

from pathlib import Path

from tacit.core.errors import StudyError, suggest
from tacit.report.pictures import Picture
from tacit.report.section import Drawings, find_sections
from tacit.report.study_tables import StudyTables


def find_drawings(results: StudyTables) -> Drawings:
    """Every picture that these results have, by name."""
    drawings: Drawings = {}
    for section in find_sections():
        drawings |= section.drawings(results)
    return drawings


def draw_figure(results: StudyTables, kind: str | None = None) -> Picture:
    """One picture of the results: the score by default, or another that they have."""
    drawings = find_drawings(results)
    kind = kind or results.score
    if kind not in drawings:
        meant = suggest(kind, drawings)
        raise StudyError(f"there is no picture {kind!r} of these results; {meant}")
    return Picture(drawings[kind]())


def write_figures(results: StudyTables) -> list[Path]:
    """Every picture as svg and png, in the folder figures/."""
    paths = []
    for name, draw in find_drawings(results).items():
        picture = Picture(draw())
        for suffix in ("svg", "png"):
            paths.append(picture.save(results.folder / "figures" / f"{name}.{suffix}"))
    return paths
