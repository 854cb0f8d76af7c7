"""A section of the report. Each is a folder in `sections/`, which the page finds by itself:

    section.py          the numbers and texts: one subclass of `Section`
    section.html.jinja  its part of the page
    section.js          its charts, if it has any: `charts` and `selects` in page.js
    section.css         its style, if the page's own is not enough
    pictures.py         its drawings for files and notebooks, if it has any
    test_*.py           its tests

A section reads results through `StudyTables` and `tacit.records`; it never imports what made them.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.report.study_tables import StudyTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTIONS = Path(__file__).parent / "sections"
Drawings = dict[str, Callable[[], "Figure"]]  # by the name of the picture


class Section(ABC):
    """Base of the sections. A section's name is that of its folder, and its anchor on the page."""

    title: ClassVar[str]  # in the list of sections
    order: ClassVar[int]  # a section with a higher number stands below
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.split(".")[-2]

    def is_shown(self, results: StudyTables) -> bool:
        """Whether these results have this section."""
        return True

    def contents(self, results: StudyTables) -> dict[str, Any]:
        """What its part of the page is filled in with."""
        return {}

    def chart_data(self, results: StudyTables) -> Any:
        """The numbers behind its charts, as plain values: `data.sections.<name>` in its script."""
        return None

    def drawings(self, results: StudyTables) -> Drawings:
        """Its pictures for files and notebooks."""
        return {}

    def file(self, name: str) -> str:
        """The text of a file in its folder; empty where there is none."""
        path = SECTIONS / self.name / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


@cache
def find_sections() -> tuple[Section, ...]:
    """The section of every folder in `sections/`, in the order of the page."""
    sections = []
    for folder in pkgutil.iter_modules([str(SECTIONS)]):
        module = importlib.import_module(f"tacit.report.sections.{folder.name}.section")
        classes = [value for value in vars(module).values() if isinstance(value, type)]
        for cls in classes:
            if issubclass(cls, Section) and cls is not Section:
                sections.append(cls())
    return tuple(sorted(sections, key=lambda section: section.order))
