"""Studies whose history a test writes itself, and the contents of their page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.records.history import read_lines
from tacit.report.section import Section, find_sections

Record = dict[str, Any]
Change = Callable[[Record], Record | None]


def history_of(results: tacit.Results) -> list[Record]:
    return read_lines(results.folder / "history.jsonl")


def with_history(results: tacit.Results, folder: Path, records: Iterable[Record]) -> tacit.Results:
    """The same study in another folder, with these records as its history."""
    for name in ("study.yaml", "outline.json", "splits.json"):
        (folder / name).write_text((results.folder / name).read_text())
    lines = [json.dumps(record) + "\n" for record in records]
    (folder / "history.jsonl").write_text("".join(lines))
    return tacit.Results(folder)


def contents_of(name: str, results: tacit.Results) -> dict[str, Any]:
    """The values that fill in a section's template."""
    return section_of(name).contents(results)


def chart_data_of(name: str, results: tacit.Results) -> Any:
    """The numbers behind a section's charts."""
    return section_of(name).chart_data(results)


def section_of(name: str) -> Section:
    (section,) = (section for section in find_sections() if section.name == name)
    return section


def assert_best_is_marked(table: dict[str, Any], better: Callable[..., Any]) -> None:
    """The best cell of each column is bold, and the best of all is the darkest."""
    for column in zip(*(row["cells"] for row in table["rows"]), strict=True):
        means = [float(cell["mean"]) for cell in column]
        is_best = [mean == better(means) and len(set(means)) > 1 for mean in means]
        assert [cell["best"] for cell in column] == is_best
    cells = [cell for row in table["rows"] for cell in row["cells"]]
    assert better(cells, key=lambda cell: float(cell["mean"]))["shade"] == pytest.approx(1)
    assert {cell["shade"] for cell in cells} >= {0.0, 1.0}
    assert any(cell["best"] for cell in cells)


def a_copy(results: tacit.Results, folder: Path, change: Change | None = None) -> tacit.Results:
    """The whole study in another folder; `change` may alter its records, or leave some out."""
    copy = folder / "copy"
    shutil.copytree(results.folder, copy)
    if change is not None:
        lines = []
        for record in history_of(results):
            changed = change(record)
            if changed is not None:
                lines.append(json.dumps(changed) + "\n")
        (copy / "history.jsonl").write_text("".join(lines))
    return tacit.Results(copy)
