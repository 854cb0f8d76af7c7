"""The report: one page that opens offline."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from tacit.core.files import replacing
from tacit.core.version import __version__
from tacit.report.contents import contents
from tacit.report.tables import Tables

HERE = Path(__file__).parent


def write_page(results: Tables) -> Path:
    """Writes report.html into the study's folder."""
    with replacing(results.report) as file:
        file.write(render(results))
    return results.report


def render(results: Tables, *, live: bool = False, tag: str = "") -> str:
    """The page as text; a live one asks its server for news."""
    style, template = _read("report.css"), _read("report.html.jinja")
    script = "".join(map(_read, ("charts.js", "fusion.js", "report.js")))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        contents(results), style=style, script=script, live=live, tag=tag, version=__version__
    )
    return page.lstrip()


@cache
def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
