"""The README's study works in a real Jupyter kernel, where objects have displays of their own."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def execute(cells: list[str], folder: Path) -> list[dict[str, Any]]:
    """The data of all outputs of each cell, by type; printed text under `stdout` and `stderr`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nbclient
        from nbformat import v4

        notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    return [outputs_of(cell) for cell in notebook.cells]


def outputs_of(cell: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for output in cell.outputs:
        data |= output.get("data", {})
        if "name" in output:
            stream = output["name"]
            data[stream] = data.get(stream, "") + output["text"]
    return data


@pytest.mark.filterwarnings("ignore")
def test_the_readme_s_study_runs_and_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert block
    cells = [
        block[1],
        "study",
        "results",
        "results.plot()",
        "results.frame().head()",
        "results.model(results.best())",
    ]
    ran, study, results, plot, frame, model = execute(cells, tmp_path)
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
