"""The report: one page that opens offline, made of sections."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from tacit.core.files import replacing
from tacit.core.version import __version__
from tacit.report.curves import chart_data
from tacit.report.overview import overview
from tacit.report.section import find_sections
from tacit.report.study_tables import StudyTables

HERE = Path(__file__).parent
SCRIPTS = ("charts.js", "page.js", "curves.js")


def write_page(results: StudyTables) -> Path:
    """Writes report.html into the study's folder."""
    with replacing(results.report) as file:
        file.write(render(results))
    return results.report


def render(results: StudyTables, *, live: bool = False, tag: str = "") -> str:
    """The page as text; a live one asks its server for news."""
    data = chart_data(results)
    head = overview(results)
    sections = []
    section_data = {}
    for section in find_sections():
        if section.is_shown(results):
            template = _templates().get_template(f"sections/{section.name}/section.html.jinja")
            html = template.render(head, data=data, **section.contents(results))
            sections.append({"name": section.name, "title": section.title, "html": html})
            section_data[section.name] = section.chart_data(results)
    page = _templates().get_template("page.html.jinja")
    text = page.render(
        head,
        sections=sections,
        data={**data, "sections": section_data},
        style=_style(),
        script=_script(),
        live=live,
        tag=tag,
        version=__version__,
    )
    return text.lstrip()


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(HERE)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


@cache
def _style() -> str:
    parts = [_read("page.css"), *(section.file("section.css") for section in find_sections())]
    return "".join(parts)


@cache
def _script() -> str:
    """The page's scripts, then each section's in a block, so that its names are its own."""
    parts = [_read(name) for name in SCRIPTS]
    for section in find_sections():
        script = section.file("section.js")
        if script:
            parts.append(f"{{\n{script}}}\n")
    parts.append("openPage();\n")
    return "".join(parts)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
