"""Writes the methods that the registry holds into README.md and docs/methods.md: make docs."""

from __future__ import annotations

import inspect
from pathlib import Path

from tacit.cli.families import families
from tacit.cli.list import row
from tacit.core.registry import Registered

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- methods: written by make docs -->"
END = "<!-- end of methods -->"

INTRODUCTION = """
What there is to choose from, by kind; `tacit list` shows the same in the terminal. Studies run on
row splits; a column split divides a table for parties that hold different columns.
"""


def short_list() -> str:
    """One line per family, with the names of its methods."""
    lines = []
    for family, base in families().items():
        names = ", ".join(f"`{name}`" for name in base.known())
        lines.append(f"- {title(family)}: {names}")
    return "\n".join(lines)


def long_page() -> str:
    """Every method with its full docstring and settings."""
    sections = ["# Methods", INTRODUCTION]
    for family, base in families().items():
        sections.append(f"## {title(family)}\n")
        for name, cls in base.known().items():
            sections.append(method_section(name, cls))
    return "\n".join(sections)


def method_section(name: str, cls: type[Registered]) -> str:
    settings = [f"`{key}: {value}`" for key, value in row(name, cls)["settings"].items()]
    shown = ", ".join(settings) or "none"
    return f"### {name}\n\n```text\n{inspect.getdoc(cls)}\n```\n\nSettings: {shown}.\n"


def with_list(readme: str) -> str:
    """The README with a fresh list between its two markers."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{short_list()}\n{END}{after}"


def title(family: str) -> str:
    return family.replace("_", " ").capitalize()


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_list(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "methods.md").write_text(long_page(), encoding="utf-8")
