"""What the README shows works in a real Jupyter kernel, with displays that show themselves."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def executed(cells: list[str], folder: Path) -> list[dict[str, Any]]:
    """The data of all outputs of each cell, by type; printed text under `stdout` and `stderr`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nbclient
        from nbformat import v4

        made = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
        nbclient.NotebookClient(
            made, timeout=120, resources={"metadata": {"path": str(folder)}}
        ).execute()
    found = []
    for cell in made.cells:
        data: dict[str, Any] = {}
        for output in cell.outputs:
            data |= output.get("data", {})
            if "name" in output:
                data[output["name"]] = data.get(output["name"], "") + output["text"]
        found.append(data)
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_readme_s_study_runs_and_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    block = re.search(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert block
    cells = [
        block[1],
        "study",
        "results",
        "results.plot()",
        "results.frame().head()",
        "results.model(results.best())",
    ]
    ran, study, results, plot, frame, model = executed([*cells], tmp_path)
    assert "<progress" in ran["text/html"]
    assert "6 of 6 runs" in ran["text/html"]
    assert "fedprox" in ran["stdout"]
    assert ran.get("stderr", "") == ""
    assert "How do fedsgd, fedavg and fedprox compare" in study["text/html"]
    assert "report.html" in results["text/html"]
    assert "<table" in results["text/html"]
    assert len(plot["image/png"]) > 10_000
    assert "<table" in frame["text/html"]
    assert "Sequential" in model["text/plain"]
