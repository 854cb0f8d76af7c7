"""Writes the tables of methods, from the registry, into README.md and docs/methods.md. Usage: make docs"""

from __future__ import annotations

import inspect
from pathlib import Path

from tacit.cli.list import families, row

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- methods: written by make docs -->", "<!-- end of methods -->"

INTRODUCTION = """
What there is to choose from, by kind; `tacit list` shows the same in the terminal. Studies run on row splits; a column
split divides a table for parties that hold different columns.
"""


def short_table() -> str:
    """One line per method."""
    lines = ["| kind | name | what it is |", "|---|---|---|"]
    for family, base in families().items():
        for name, cls in base.known().items():
            lines.append(f"| {singular(family)} | `{name}` | {row(name, cls)['summary']} |")
    return "\n".join(lines)


def long_page() -> str:
    """Every method with its full docstring and settings."""
    parts = ["# Methods", INTRODUCTION]
    for family, base in families().items():
        parts.append(f"## {family.replace('_', ' ').capitalize()}\n")
        for name, cls in base.known().items():
            settings = (
                ", ".join(f"`{key}: {value}`" for key, value in row(name, cls)["settings"].items())
                or "none"
            )
            parts.append(
                f"### {name}\n\n```text\n{inspect.getdoc(cls)}\n```\n\nSettings: {settings}.\n"
            )
    return "\n".join(parts)


def with_table(readme: str) -> str:
    """The README with a fresh table between its two markers."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{short_table()}\n{END}{rest.split(END)[1]}"


def singular(family: str) -> str:
    return family.removesuffix("s").replace("_", " ")


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "methods.md").write_text(long_page(), encoding="utf-8")
